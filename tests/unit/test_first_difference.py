"""Two runs with checksums part at a step and a module, or are the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from steptime.app.stored.first_difference import find_first_difference
from steptime.compare.values import FirstDifference
from steptime.core.store import Run
from steptime.errors import NotFoundError
from steptime.report.blocks.compare.comparison_report import _parting


def line(n, *, batch=1, loss="0x1p0", outputs=1, before=1, gradients=1, weights=1):
    def rows(names, last):
        return [*([name, 7] for name in names[:-1]), [names[-1], last]]

    return {
        "k": "k",
        "n": n,
        "ns": 5,
        "batch": batch,
        "loss": [loss],
        "outputs": rows(["a", "b"], outputs),
        "before": rows(["a.weight", "b.weight"], before),
        "gradients": rows(["a.weight", "b.weight"], gradients),
        "norm": 1.0,
        "weights": rows(["a.weight", "b.weight"], weights),
    }


def write(folder: Path, *lines, rank: int = 0) -> Run:
    folder.mkdir(exist_ok=True)
    text = "".join(json.dumps(one) + "\n" for one in lines)
    (folder / f"checksums-{rank}.jsonl").write_text(text)
    return Run(run_id=folder.name, folder=folder)


@pytest.mark.parametrize(
    ("changed", "what", "module"),
    [
        ({"before": 2, "weights": 2}, "before", "b.weight"),
        ({"batch": 2, "loss": "0x2p0"}, "batch", ""),
        ({"outputs": 2, "loss": "0x2p0"}, "outputs", "b"),
        ({"loss": "0x2p0", "gradients": 2}, "loss", ""),
        ({"gradients": 2, "weights": 2}, "gradients", "b.weight"),
        ({"weights": 2}, "weights", "b.weight"),
    ],
)
def test_what_is_made_first_in_a_step_is_named(tmp_path, changed, what, module):
    a = write(tmp_path / "a", line(1), line(2), line(4))
    b = write(tmp_path / "b", line(1), line(2), line(4, **changed), line(8, batch=3))

    found = find_first_difference(a, b)
    assert (found.step, found.same_until, found.what, found.module) == (4, 2, what, module)
    assert (found.rank, found.steps) == (0, (1, 2, 4))


def test_runs_that_are_the_same_have_no_difference_in_the_steps_of_both(tmp_path):
    a = write(tmp_path / "a", line(1), line(2), line(4))
    b = write(tmp_path / "b", line(1), line(2))

    found = find_first_difference(a, b)
    assert found == FirstDifference(steps=(1, 2))
    assert "same checksums in steps 1, 2" in str(_parting(found)[0].text)


def test_another_level_is_compared_in_what_both_kept_and_other_models_are_named(tmp_path):
    whole = {**line(1), "outputs": [], **{k: [["", 9]] for k in ("before", "gradients", "weights")}}
    a, b = write(tmp_path / "a", line(1)), write(tmp_path / "b", whole)
    assert find_first_difference(a, b).step is None

    other = line(1)
    other["before"] = [["a.weight", 7], ["c.weight", 1]]
    found = find_first_difference(a, write(tmp_path / "c", other))
    assert (found.what, found.module, found.same_until) == ("before", "b.weight", None)


def test_ranks_are_compared_each_with_its_own(tmp_path):
    a = write(tmp_path / "a", line(1), line(2))
    write(tmp_path / "a", line(1, batch=5), line(2), rank=1)
    b = write(tmp_path / "b", line(1), line(2))
    write(tmp_path / "b", line(1, batch=5), line(2, gradients=2), rank=1)

    found = find_first_difference(a, b)
    assert (found.step, found.rank, found.what) == (2, 1, "gradients")


def test_a_run_without_checksums_is_a_clear_error(tmp_path):
    a, b = write(tmp_path / "a", line(1)), write(tmp_path / "b", line(2))
    with pytest.raises(NotFoundError, match="share no step"):
        find_first_difference(a, b)
    with pytest.raises(NotFoundError, match="has no checksums"):
        find_first_difference(a, Run(run_id="c", folder=tmp_path / "c"))


def test_steps_that_were_not_kept_are_named_with_what_to_do():
    found = FirstDifference(
        steps=(8, 16), step=16, same_until=8, what="before", module="0.weight", rank=0
    )
    (block,) = _parting(found)
    assert "Steps 9 to 15 were not kept, and the runs part in one of them" in str(block.text)


TWIN = """
import os, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(1, 13):
    x = torch.randn(4, 8)
    if step == int(os.environ.get("BAD", "0")):
        with torch.no_grad():
            model[2].bias += 1e-6
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item().hex())
"""


@pytest.mark.slow("runs three short trainings")
def test_a_planted_difference_is_named_and_the_training_stays_the_same(tmp_path):
    (tmp_path / "train.py").write_text(TWIN)

    def run(*words, bad=0):
        environment = {**os.environ, "BAD": str(bad)}
        done = subprocess.run(
            [*words, sys.executable, "train.py"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        return done.stdout

    ours = (sys.executable, "-m", "steptime")
    checked = (*ours, "run", "--quiet", "--checksums", "3", "--")
    assert run() == run(*checked)
    run(*checked, bad=11)
    words = (*ours, "compare", "--first-difference", "last~1", "last", "--json")
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    found = json.loads(done.stdout)["data"]["first_difference"]

    assert done.returncode == 0
    assert (found["step"], found["same_until"]) == (11, 10)
    assert (found["what"], found["module"]) == ("before", "2.bias")
