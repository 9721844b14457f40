"""Levers that fuse operators in the user's process: what a trial tells, and what they do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import (
    SPECIMENS,
    fork_bare,
    needs_linux,
    needs_torch,
    rows,
    run_both_forked,
    run_folder,
    run_forked,
)
from steptime.levers import file_of, load

pytestmark = [
    needs_torch,
    needs_linux,
    pytest.mark.slow("twelve trainings of three specimens, each bare and observed"),
]

SCRIPT = SPECIMENS / "written_attention.py"
WORDS = ("--steps", "8", "--length", "32", "--width", "16")
LOOP = SPECIMENS / "stepped_lstm.py"
GELU = SPECIMENS / "written_gelu.py"
BAG = SPECIMENS / "zero_input.py"


def tried(folder: Path, *command: str | Path, **changes: Any) -> tuple[bytes, dict[str, Any]]:
    """What a specimen prints in a trial, and the last facts."""
    folder.mkdir()
    asked = {"schema": 1, "mode": "trial", "levers": [], "is_live": False, "quality": None}
    (folder / "plan.json").write_text(json.dumps(asked | {"probe": True} | changes))
    variables = {"STEPTIME_PLAN": str(folder / "plan.json")}
    done = run_forked(folder, "python", *command, **variables)
    assert done.exit_code == 0, done.stderr.decode()
    found = [row for row in rows(run_folder(folder) / "rank-0.jsonl") if row["k"] == "facts"]
    return done.stdout, found[-1]["facts"] if found else {}


def asked_for(name: str) -> list[dict[str, Any]]:
    return [{"name": name, "settings": {}, "file": file_of(load(name))}]


@pytest.mark.parametrize(
    ("kind", "owners", "reasons"),
    [("einsum", ["Attention"], []), ("dropout", [], ["dropout"])],
)
def test_a_trial_tells_of_written_attention_and_changes_nothing(
    tmp_path: Path, kind: str, owners: list[str], reasons: list[str]
) -> None:
    command = (SCRIPT, *WORDS, "--kind", kind)
    printed, facts = tried(tmp_path / "tried", *command)
    bare = fork_bare(tmp_path / "bare", "python", *command).finish()

    assert printed == bare.stdout
    assert (facts["plain_attention"], facts["kept_attention"]) == (owners, reasons)
    assert facts["stepped_cells"] == []


def test_a_trial_tells_of_cells_in_a_loop_and_changes_nothing(tmp_path: Path) -> None:
    command = (LOOP, "--steps", "8", "--cell", "gru")
    printed, facts = tried(tmp_path / "tried", *command)
    bare = fork_bare(tmp_path / "bare", "python", *command).finish()

    assert printed == bare.stdout
    assert facts["stepped_cells"] == ["GRUCell"]


@pytest.mark.parametrize(
    ("kind", "classes"), [("new", ["NewGELU tanh"]), ("erf", ["ErfGELU none"]), ("scaled", [])]
)
def test_a_trial_tells_of_written_gelus_and_changes_nothing(
    tmp_path: Path, kind: str, classes: list[str]
) -> None:
    command = (GELU, *WORDS, "--kind", kind)
    printed, facts = tried(tmp_path / "tried", *command)
    bare = fork_bare(tmp_path / "bare", "python", *command).finish()

    assert printed == bare.stdout
    assert facts["written_gelus"] == classes


@pytest.mark.parametrize(
    ("words", "is_sparse"), [((), True), (("--fresh",), False), (("--dense",), False)]
)
def test_a_trial_tells_of_an_input_of_zeros_and_changes_nothing(
    tmp_path: Path, words: tuple[str, ...], *, is_sparse: bool
) -> None:
    command = (BAG, "--steps", "8", "--drop", "0.5", *words)
    printed, facts = tried(tmp_path / "tried", *command)
    bare = fork_bare(tmp_path / "bare", "python", *command).finish()

    assert printed == bare.stdout
    assert (facts["zero_fraction"] > 0.98) is is_sparse


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("fused_attention", (SCRIPT, *WORDS)),
        ("fused_gelu", (GELU, *WORDS)),
        ("sparse_input", (BAG, "--steps", "8")),
        ("fused_rnn", (LOOP, "--steps", "8")),
        ("fused_rnn", (LOOP, "--steps", "8", "--cell", "gru")),
    ],
)
def test_with_the_lever_the_training_ends_where_it_ended(
    tmp_path: Path, name: str, command: tuple[str | Path, ...]
) -> None:
    printed, _ = tried(tmp_path / "tried", *command, levers=asked_for(name), probe=False)
    bare = fork_bare(tmp_path / "bare", "python", *command).finish()

    assert float(printed.split()[-1]) == pytest.approx(float(bare.stdout.split()[-1]), rel=1e-4)
    assert printed != bare.stdout, "the lever did nothing"


def test_a_run_tells_where_attention_is_written_and_changes_nothing(tmp_path: Path) -> None:
    words = ("--steps", "14", "--length", "128", "--width", "16")
    bare, done = run_both_forked(tmp_path, "python", SCRIPT, *words)

    assert done.stdout == bare.stdout
    lines = rows(run_folder(tmp_path / "observed") / "rank-0.jsonl")
    (found,) = [line for line in lines if line["k"] == "at"]
    (call,) = found["calls"]
    text = SCRIPT.read_text().splitlines()[call["line"] - 1]
    assert (call["way"], call["num"], call["length"]) == ("written", 2, 128)
    assert "weights @ v" in text
