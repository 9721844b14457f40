"""The levers of the tests of studies: those of `levers/acting.py`, with a name for each act."""

from __future__ import annotations

import importlib.util
from types import ModuleType

from end_to_end.harness import HERE, SCRIPTS
from steptime.levers.base import Lever, Moment

BURNING = SCRIPTS / "burning.py"
ACTING = HERE / "levers" / "acting.py"


def lever(act: str) -> Lever:
    """A live lever that is named as what it does."""
    made: Lever = _load().make(act, act)
    return made


def early_lever() -> Lever:
    """What `quick` does, as a variable of the environment."""
    module = _load()
    made: Lever = module.make(
        "early", "quick", moment=Moment.ENVIRONMENT, variables=module.variables, apply=None
    )
    return made


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("acting", ACTING)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
