"""Who holds the memory: what is told of it is exact, and being told changes no bit."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import (
    LIMIT_S,
    SCRIPTS,
    environment,
    names_in,
    needs_linux,
    needs_torch,
    rows,
    run_both,
    run_folder,
    run_observed,
)

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "fit" / "memory_anatomy.py"

pytestmark = [
    needs_torch,
    needs_linux,
    pytest.mark.slow("dozens of trainings, bare and observed, with every allocation followed"),
]

# Bytes of states of a parameter, and of the step beside each tensor's.
STATES = {
    "adamw": (8, 4),
    "adamw_foreach": (8, 4),
    "adamw_fused": (8, 4),
    "momentum": (4, 0),
    "signed": (1, 0),
    "bf16": (4, 4),
    "checkpointed": (8, 4),
    "accumulated": (8, 4),
    "loss_module": (8, 4),
    "scheduled": (8, 4),
}
WAYS = names_in("dissected.py", "WAYS")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("memory")
    bare, observed = run_both(folder, "python", SCRIPTS / "dissected.py")
    for done in (bare, observed):
        assert done.exit_code == 0, done.stderr.decode()[-2000:]
    # What torch itself would say of an allocation that it does not know, say.
    before_report = re.split(r"(?m)^(?:diagnosis|machine)  ", observed.stderr.decode())[0]
    (folder / "printed").write_text(before_report.removeprefix(bare.stderr.decode()))
    return folder


def said(folder: Path, arm: str, way: str) -> dict[str, Any]:
    return json.loads((folder / arm / f"{way}.json").read_text())


def last_snapshot(folder: Path, pid: int) -> dict[str, Any]:
    lines = rows(run_folder(folder / "observed") / "processes.jsonl")
    return [line for line in lines if line["k"] == "mem" and line["pid"] == pid][-1]


@pytest.mark.parametrize("way", WAYS)
def test_following_the_storages_of_a_step_changes_no_bit(trained: Path, way: str) -> None:
    assert said(trained, "observed", way)["result"] == said(trained, "bare", way)["result"]


@pytest.mark.parametrize("way", STATES)
def test_weights_gradients_and_states_are_exact(trained: Path, way: str) -> None:
    own = said(trained, "observed", way)
    sizes, parts = own["sizes"], last_snapshot(trained, own["pid"])["parts"]
    per_element, per_tensor = STATES[way]

    assert parts["weights"]["bytes"] == parts["gradients"]["bytes"] == sizes["weights"]
    states = per_element * sizes["elements"] + per_tensor * sizes["tensors"]
    assert parts["optimizer"]["bytes"] == states


@pytest.mark.parametrize("way", sorted(set(WAYS) - {"rmsprop_nadam_adamax"}))
def test_the_step_is_followed_through_the_optimizer(trained: Path, way: str) -> None:
    own = said(trained, "observed", way)
    line = last_snapshot(trained, own["pid"])
    phases = [instant["phase"] for instant in line["step"]["instants"]]

    assert phases[0] == "forward"
    assert {"forward", "backward", "optimizer"} <= set(phases)
    assert ("loss" in phases) == (way == "loss_module")
    peak = line["step"]["peak"]["by_part"]
    assert peak["weights"] == line["parts"]["weights"]["bytes"]


def test_a_checkpointed_model_keeps_less(trained: Path) -> None:
    kept = [
        last_snapshot(trained, said(trained, "observed", way)["pid"])["parts"]["activations"][
            "bytes"
        ]
        for way in ("checkpointed", "adamw")
    ]

    assert kept[0] < kept[1]


def test_nothing_is_printed_by_a_look(trained: Path) -> None:
    assert (trained / "printed").read_text() == ""


def test_no_look_makes_the_guest_fail(trained: Path) -> None:
    ends = rows(run_folder(trained / "observed") / "processes.jsonl")

    assert [line["failures"] for line in ends if line.get("failures")] == []


def test_saved_activations_and_the_peak_are_what_a_debugger_and_the_allocator_say(
    tmp_path: Path,
) -> None:
    command = [sys.executable, str(BENCHMARK), "--models", "1", "--json", "rows.json"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, timeout=4 * LIMIT_S
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]

    assert len(rows) == 6
    for row in rows:
        assert row["weights"] == row["gradients"] == row["optimizer"] == 0, row
        assert abs(row["saved_error"]) <= 0.01, row
        assert abs(row["peak_error"]) <= 0.05, row


def test_a_run_that_dies_in_its_first_forward_knows_its_weights(tmp_path: Path) -> None:
    done = run_observed(tmp_path, "python", SCRIPTS / "starving.py", "first")
    memory = done.data["memory"]
    report = done.stderr.decode()

    assert memory["parts"]["weights"]["bytes"] == 4 * (100 * 1000 + 1000 + 1000 * 10 + 10)
    assert memory["parts"]["optimizer"]["missing"] == "no_update_seen"
    assert memory["death"]["by_part"]["weights"] == memory["parts"]["weights"]["bytes"]
    assert "would fit" in report


def test_a_run_that_dies_in_a_backward_says_who_held_what(tmp_path: Path) -> None:
    done = run_observed(tmp_path, "python", SCRIPTS / "starving.py", "later")
    memory = done.data["memory"]
    weights = memory["parts"]["weights"]["bytes"]
    (error,) = done.data["errors"]

    assert error["requested_bytes"] == 1 << 50
    assert memory["bytes_per_parameter"] == pytest.approx(16, abs=0.01)
    assert memory["death"]["by_part"]["optimizer"] >= 2 * weights
    assert memory["death"]["by_part"]["activations"] >= 32 * 1000 * 4
    assert memory["remedies"][0]["name"] == "half_micro_batch"
    assert all(one["is_enough"] is False for one in memory["remedies"])


def test_a_run_that_is_killed_has_left_its_anatomy(tmp_path: Path) -> None:
    done = run_observed(tmp_path, "python", SCRIPTS / "starving.py", "killed")
    memory = done.data["memory"]

    assert memory["moment"] == "update"
    assert memory["parts"]["gradients"]["bytes"] == memory["parts"]["weights"]["bytes"]
    assert memory["parts"]["activations"]["bytes"] >= 32 * 1000 * 4
    assert memory["death"] is None


def test_who_grows_is_told(tmp_path: Path) -> None:
    done = run_observed(tmp_path, "python", SCRIPTS / "hoarding.py")
    growth = done.data["memory"]["growth"]

    # Each kept loss keeps what its graph saved: most of it what follows the first layer.
    assert growth["largest"] == "fp32 [64, 2048]"
    assert growth["largest_num"] == growth["num_updates"] == 187
    assert growth["largest_bytes"] == 187 * 64 * 2048 * 4
