"""Whole studies of a real tiny script, with levers that do what the tests want."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from end_to_end.harness import HERE, SCRIPTS, needs_linux, needs_torch
from steptime.core.progress import Progress
from steptime.core.study import Study, StudyOutcome, TrialEnd
from steptime.levers.base import Lever, Moment
from steptime.tune.options import StudyOptions
from steptime.tune.study import run_study

pytestmark = [needs_torch, needs_linux]

BURNING = SCRIPTS / "burning.py"
ACTING = HERE / "levers" / "acting.py"


def load_levers() -> ModuleType:
    spec = importlib.util.spec_from_file_location("acting", ACTING)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lever(act: str) -> Lever:
    """A live lever of that name."""
    made: Lever = load_levers().make(act, act)
    return made


def early_lever() -> Lever:
    """The quick one as a variable of the environment."""
    module = load_levers()
    made: Lever = module.make(
        "early", "quick", moment=Moment.ENVIRONMENT, variables=module.variables, apply=None
    )
    return made


def study(
    folder: Path,
    *levers: Lever,
    words: Sequence[str] = (),
    budget_s: float = 90.0,
    told: list[Progress] | None = None,
) -> Study:
    options = StudyOptions(
        command=(sys.executable, str(BURNING), *words),
        store=folder,
        levers=levers,
        budget_s=budget_s,
        allow_unsafe=True,
    )
    heard = [] if told is None else told
    return run_study(options, progress=heard.append)


def ends(found: Study) -> dict[str, TrialEnd]:
    """How the live trials of single levers ended."""
    return {t.state[0].name: t.end for t in found.trials if t.kind == "live" and len(t.state) == 1}


@pytest.mark.slow
def test_the_lever_that_helps_is_found_among_those_that_do_harm(tmp_path: Path) -> None:
    told: list[Progress] = []
    acts = ("nothing", "crash", "not_finite", "quick")

    found = study(tmp_path, *map(lever, acts), told=told, budget_s=150.0)

    assert found.outcome is StudyOutcome.FASTER
    assert [one.name for one in found.recipe] == ["quick"]
    assert found.speedup is not None
    assert found.speedup.low > 1.5
    assert found.quality is not None
    assert found.quality.level == "L0"
    assert ends(found)["crash"] is TrialEnd.FAILED
    assert ends(found)["not_finite"] is TrialEnd.DIVERGED
    assert told[0].phase == "probe"
    assert told[-1].phase == "done"
    (folder,) = (tmp_path / ".steptime" / "studies").glob("2*")
    assert (folder / "tuned.toml").is_file()
    assert json.loads((folder / "study.json").read_text())["outcome"] == "faster"
