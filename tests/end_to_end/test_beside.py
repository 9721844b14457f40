"""What goes on beside the steps is timed as the script itself times it, and nothing changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import (
    SCRIPTS,
    needs_linux,
    needs_torch,
    rows,
    run_both_forked,
    run_folder,
    run_forked,
)

pytestmark = [needs_torch, needs_linux]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, float]]:
    """The whole time of a run, and what its script says."""
    done = run_forked(tmp_path_factory.mktemp("started"), "python", SCRIPTS / "started.py")
    assert done.exit_code == 0, done.stderr.decode()
    return done, json.loads(done.stdout)["spent"]


@pytest.mark.parametrize("name", ["imports", "data_set", "model", "loading", "after_steps"])
def test_the_parts_are_what_the_script_says(started: Any, name: str) -> None:
    done, spent = started
    parts = {part["name"]: part["total_s"] for part in done.data["wall_time"]["parts"]}

    # The interpreter's own end, 0 to 60 ms, comes after the last that the script could time.
    end_s = 0.03 if name == "after_steps" else 0.0
    assert parts[name] == pytest.approx(spent[name] + end_s, rel=0.2, abs=0.03)


def test_the_first_batch_is_told_apart(started: Any) -> None:
    done, _ = started
    parts = {part["name"]: part["total_s"] for part in done.data["wall_time"]["parts"]}
    assert parts["first_batch"] >= 0.1


def test_the_parts_sum_to_the_time_of_the_command(started: Any) -> None:
    done, _ = started
    wall = done.data["wall_time"]

    total_s = sum(part["total_s"] for part in wall["parts"])
    assert total_s == pytest.approx(wall["total_s"])
    assert total_s == pytest.approx(done.data["duration_s"], rel=0.02)
    assert done.data["run"]["goodput_fraction"] == pytest.approx(
        next(p["total_s"] for p in wall["parts"] if p["name"] == "steps") / total_s
    )


def test_each_part_has_its_line(started: Any) -> None:
    done, _ = started
    where = {part["name"]: part["where"] for part in done.data["wall_time"]["parts"]}
    lines = (SCRIPTS / "started.py").read_text().splitlines()

    for name, text in {
        "data_set": "loader = DataLoader(Data(), batch_size=4)",
        "model": "model = Net()",
        "loading": "torch.load(buffer, weights_only=False)",
        "checkpoint": 'torch.save({"model": model.state_dict(), "late": Late()}, path)',
    }.items():
        assert lines[int(where[name].rpartition(":")[2]) - 1].strip() == text


def test_a_checkpoint_is_told_by_parts(started: Any) -> None:
    done, spent = started
    found = done.data["wall_time"]["checkpoints"]

    assert found["num"] == 5  # with the one before the first step
    parts = ("gather_s", "copy_s", "serialize_s", "write_s", "other_s")
    assert sum(found[name] for name in parts) == pytest.approx(found["total_s"])
    assert found["serialize_s"] >= 5 * 0.03
    span_s = next(
        p["total_s"] for p in done.data["wall_time"]["parts"] if p["name"] == "checkpoint"
    )
    assert found["total_s"] == pytest.approx(span_s, rel=0.02)
    assert found["total_s"] - 0.03 == pytest.approx(spent["checkpoint"], rel=0.2, abs=0.03)


def test_every_way_to_save_is_seen(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    done = run_forked(tmp_path, "python", SCRIPTS / "saving.py")
    assert done.exit_code == 0, done.stderr.decode()

    lines = rows(run_folder(tmp_path) / "rank-0.jsonl")
    found = [row for line in lines if line["k"] == "cp" for row in line["rows"]]
    kinds = {row[0]: row for row in found if not row[-2]}
    spent = json.loads(done.stdout)
    assert set(kinds) == set(spent) == {"torch", "safetensors", "distributed", "staging"}
    for kind, row in kinds.items():
        assert row[2] / 1e9 == pytest.approx(sum(spent[kind]), rel=0.2, abs=0.01)
    for kind in ("torch", "safetensors", "distributed"):
        assert kinds[kind][6] > 0, f"{kind} writes"
    assert kinds["distributed"][3] > 0, "the plan is made before anything is written"
    beside = [row for row in found if row[-2]]
    assert [row[0] for row in beside] == ["distributed"]
    assert "guest_failures" not in done.notes


def test_imports_and_torchs_functions_look_as_without_us(tmp_path: Path) -> None:
    bare, observed = run_both_forked(tmp_path, "python", SCRIPTS / "imported.py")

    assert (bare.exit_code, observed.exit_code) == (0, 0), observed.stderr.decode()
    assert observed.stdout.decode() == bare.stdout.decode()
    assert "guest_failures" not in observed.notes
