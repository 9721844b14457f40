"""The rooms of benchmarks/: how much lies in each, and that its README lists all scripts."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
ROOMS = ("run", "tune", "data", "fit", "verify", "graph", "methods", "quantize")
MOST_SCRIPTS = 16


def scripts_of(room: str) -> list[Path]:
    return sorted(x for x in (BENCHMARKS / room).glob("*.py") if not x.name.startswith("_"))


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_holds_what_one_can_look_over(room):
    assert 0 < len(scripts_of(room)) <= MOST_SCRIPTS


def test_every_script_lies_in_a_room():
    assert not [*BENCHMARKS.glob("*.py")]
    assert {x.parent.name for x in BENCHMARKS.glob("*/*.py")} == {*ROOMS, "shared"}


def test_the_readme_says_of_each_script_what_its_first_line_says():
    text = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[(\w+)\]\((\w+)/\1\.py\): (.*)$", text, re.MULTILINE)
    assert listed == [
        (script.stem, room, str(ast.get_docstring(ast.parse(script.read_text()))).split("\n")[0])
        for room in ROOMS
        for script in scripts_of(room)
    ]
