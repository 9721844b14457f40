"""Each lever is handed over: as an edit, in the launch line, or as a sentence with its lines."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("libcst")

from patch_cases import LEVERS, SCRIPT, patched
from steptime.patch.edits import EDITS, NO_EDITS, VARIABLES
from steptime.patch.make_patch import NO_EDIT
from steptime.testing.levers import settings_of
from steptime.tune.values.study_values import Applied


def states_of(name: str) -> list[Applied]:
    """The lever with all settings that it has in some world."""
    return [Applied(name=name, settings=each) for each in settings_of(LEVERS[name])]


@pytest.mark.parametrize("name", LEVERS)
def test_no_lever_is_dropped_silently(name: str, tmp_path: Path) -> None:
    states = states_of(name)
    assert states
    for applied in states:
        found = patched(tmp_path, SCRIPT, applied)
        placed = [one for one in found.placed if one.name == name]
        by_hand = [one for one in found.by_hand if one.lever == name]

        assert placed or by_hand
        assert all(one.reason.endswith(".") and one.lines for one in by_hand)
        if any(one.places for one in placed):
            assert found.diff
        elif placed:
            assert found.launch_line is not None
        if not by_hand and name in EDITS:
            assert found.files


WITHOUT = [
    name
    for name, lever in LEVERS.items()
    if name not in EDITS and name not in VARIABLES and lever.variables is None
]


@pytest.mark.parametrize("name", WITHOUT)
def test_a_lever_without_an_edit_says_so_with_its_lines(name: str, tmp_path: Path) -> None:
    for applied in states_of(name):
        (one,) = patched(tmp_path, SCRIPT, applied).by_hand
        reason = NO_EDITS.get(name, NO_EDIT)
        assert (one.reason, one.lines) == (reason, LEVERS[name].edit(applied.settings))


def test_edits_are_of_levers_that_exist() -> None:
    assert {*EDITS, *NO_EDITS, *VARIABLES} <= set(LEVERS)
    assert not set(EDITS) & set(NO_EDITS)
