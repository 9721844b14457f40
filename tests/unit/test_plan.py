"""What the guest reads of a plan, and how it finds lever files."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import steptime.levers.base
from steptime.guest.trial import trial_plan
from steptime.guest.trial.trial_plan import Wanted, load_lever, read_plan

LEVER = """
{import_line}

LEVER = {module}Lever(
    name="{name}", title="", relieves=(), phases=(), preserves={module}Preserves.EXACT, when="",
    applies=lambda facts: None, space=lambda facts: (), moment={module}Moment.LIVE,
    edit=lambda settings: "", costs="", source="", apply={apply},
)
"""


@pytest.fixture(autouse=True)
def _forget_private_modules() -> Iterator[None]:
    yield
    for name in [name for name in sys.modules if name.startswith(trial_plan.PACKAGE)]:
        del sys.modules[name]


def write_lever(
    folder: Path, import_line: str, *, module: str = "", apply: str = "lambda *_: None"
) -> Wanted:
    path = folder / "own.py"
    text = LEVER.format(import_line=import_line, name="own", module=module, apply=apply)
    path.write_text(text)
    return Wanted("own", {}, str(path))


@pytest.mark.parametrize(
    ("import_line", "module"),
    [
        ("from .base import Lever, Moment, Preserves", ""),
        ("from steptime.levers.base import Lever, Moment, Preserves", ""),
        ("from steptime.levers import base", "base."),
        ("import steptime.levers.base", "steptime.levers.base."),
    ],
)
def test_a_lever_finds_the_contract_under_each_of_its_names(
    tmp_path: Path, import_line: str, module: str
) -> None:
    lever = load_lever(write_lever(tmp_path, import_line, module=module))

    assert type(lever).__module__ == f"{trial_plan.PACKAGE}.base"
    assert type(lever) is not steptime.levers.base.Lever


def test_the_scripts_own_modules_are_untouched(tmp_path: Path) -> None:
    before = dict(sys.modules)
    load_lever(write_lever(tmp_path, "from steptime.levers.base import Lever, Moment, Preserves"))

    new = {name for name in sys.modules if sys.modules[name] is not before.get(name)}
    assert {name for name in new if not name.startswith(trial_plan.PACKAGE)} == set()
    assert before.keys() <= sys.modules.keys()


def test_where_steptime_is_not_imported_no_name_of_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in trial_plan.PUBLIC:
        monkeypatch.delitem(sys.modules, name, raising=False)
    load_lever(write_lever(tmp_path, "from steptime.levers.base import Lever, Moment, Preserves"))

    assert not [name for name in trial_plan.PUBLIC if name in sys.modules]


def test_two_levers_of_the_same_file_name_are_two(tmp_path: Path) -> None:
    line = "from .base import Lever, Moment, Preserves"
    found = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        found.append(load_lever(write_lever(tmp_path / name, line)))

    assert found[0] is not found[1]
    assert load_lever(Wanted("own", {}, str(tmp_path / "b" / "own.py"))) is found[1]


def test_a_lever_that_the_guest_cannot_apply_is_refused(tmp_path: Path) -> None:
    wanted = write_lever(tmp_path, "from .base import Lever, Moment, Preserves", apply="None")

    with pytest.raises(ValueError, match="no `apply`"):
        load_lever(wanted)


def test_a_file_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    wanted = write_lever(tmp_path, "raise OSError('no')")

    for _ in range(2):
        with pytest.raises(OSError, match="no"):
            load_lever(wanted)
    assert "steptime" in sys.modules


def write_plan(folder: Path, **fields: Any) -> str:
    path = folder / "plan.json"
    path.write_text(json.dumps({"schema": 1, "mode": "trial", "levers": [], **fields}))
    return str(path)


def test_a_plan_is_read_with_what_it_leaves_out(tmp_path: Path) -> None:
    found = read_plan(write_plan(tmp_path))

    assert (found.is_recipe, found.levers, found.is_live) == (False, (), False)
    assert (found.quality, found.is_probing, found.shown) == (None, False, str(tmp_path))
    told = Path(write_plan(tmp_path)).read_text()
    assert read_plan(told, str(tmp_path)) == found  # as a trial is told it
    assert read_plan(told, 4096).shown == 4096


def test_levers_stand_with_their_settings(tmp_path: Path) -> None:
    levers = [{"name": "autocast", "settings": {"dtype": "bf16"}, "file": "/a/autocast.py"}]
    found = read_plan(write_plan(tmp_path, mode="recipe", levers=levers))

    assert found.is_recipe
    assert found.levers == (Wanted("autocast", {"dtype": "bf16"}, "/a/autocast.py"),)


def test_a_plan_of_another_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="schema"):
        read_plan(write_plan(tmp_path, schema=2))
