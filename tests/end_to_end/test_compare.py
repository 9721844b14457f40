"""Real runs are compared by what they were really made with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import (
    ask_steptime,
    needs_linux,
    needs_torch,
    run_forked,
)

pytestmark = [needs_linux, needs_torch]

SCRIPT = """\
import sys
import torch
from torch import nn

size = int(sys.argv[1])
torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(40 * size, 16), torch.randint(4, (40 * size,)))
model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in torch.utils.data.DataLoader(data, batch_size=size):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""


def compared(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    done = ask_steptime(folder, "compare", *words, "--json")
    return done.exit_code, json.loads(done.stdout)["data"]["comparison"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs with batches of 8, of 8 again, and of 16 in another environment."""
    folder = tmp_path_factory.mktemp("compare")
    (folder / "train.py").write_text(SCRIPT)
    for size, variables in (("8", {}), ("8", {}), ("16", {"MALLOC_ARENA_MAX": "1"})):
        done = run_forked(folder, "python", "train.py", size, **variables)
        assert done.exit_code == 0, done.stderr.decode()
    return folder


def test_repeats_of_a_run_differ_in_nothing_that_was_recorded(folder: Path) -> None:
    code, data = compared(folder, "last~2", "--", "last~1")

    assert code == 4
    assert (data["outcome"], data["reason"]) == ("too_noisy", "single_runs")
    assert (data["changes"], data["obstacles"]) == ([], [])
    assert data["finish"]["a_s"] > data["step"]["a_s"] * 40 > 0


def test_what_was_changed_is_seen_from_outside_and_from_within(folder: Path) -> None:
    code, data = compared(folder, "last~1", "--", "last", "--fail-if-slower", "5%")

    assert code == 2
    assert [obstacle["code"] for obstacle in data["obstacles"]] == ["other_input"]
    found = {(c["what"], c["name"]): (c["a"], c["b"]) for c in data["changes"]}
    assert found == {
        ("argument", "word 2"): (["8"], ["16"]),
        ("environment", "MALLOC_ARENA_MAX"): ([], ["1"]),
        ("input", "inputs"): (["8x16 float32"], ["16x16 float32"]),
        ("loader", "TensorDataset batch_size"): (["8"], ["16"]),
    }


def test_the_step_is_divided_by_phase(folder: Path) -> None:
    _, data = compared(folder, "last~2", "--", "last~1")

    phases = {phase["name"]: phase for phase in data["phases"]}
    assert {"input_wait", "forward", "backward", "optimizer"} <= set(phases)
    total_s = sum(phase["a_s"] for phase in phases.values())
    assert total_s == pytest.approx(data["step"]["a_s"], rel=1e-6)
