"""Cells of a notebook: what the guest tells of them, and how their lines are named."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from steptime.guest.sites.cells import MAX_TEXT, CellTeller, read_numbers
from steptime.guest.sites.file_owners import USERS, FileOwners
from steptime.measure.fold.code_places import CodePlaces
from steptime.measure.source.scan import read_source, write_source
from steptime.measure.values.observations import Site, place_text
from unit.builders import Line, make_head, write_run

FILE = "/tmp/ipykernel_7/123.py"
TYPED = "<ipython-input-2-0123456789ab>"
TEXT = "import torch\nloss.backward()\n"


class Teller(CellTeller):
    def __init__(self) -> None:
        torch = SimpleNamespace(__file__="/packages/torch/__init__.py")
        self.rows: list[list[Any]] = []
        super().__init__(FileOwners(torch), self.rows.extend)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The file names that a shell of IPython has compiled cells under."""
    names: dict[str, int] = {}
    shell = SimpleNamespace(compile=SimpleNamespace(_filename_map=names))
    module = SimpleNamespace(InteractiveShell=SimpleNamespace(_instance=shell))
    monkeypatch.setitem(sys.modules, "IPython.core.interactiveshell", module)
    for name in (FILE, TYPED):
        entry = (len(TEXT), None, TEXT.splitlines(keepends=True), name)
        monkeypatch.setitem(linecache.cache, name, entry)
    return names


# -- the guest


def test_without_ipython_there_are_no_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython.core.interactiveshell", raising=False)
    teller = Teller()
    assert (read_numbers(), teller.poll(0, is_last=True), teller.rows) == ({}, "", [])


def test_an_older_ipython_has_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = SimpleNamespace(compile=SimpleNamespace())
    module = SimpleNamespace(InteractiveShell=SimpleNamespace(_instance=shell))
    monkeypatch.setitem(sys.modules, "IPython.core.interactiveshell", module)
    assert read_numbers() == {}


def test_cells_are_told_once_and_again_when_they_run_again(names: dict[str, int]) -> None:
    teller = Teller()
    names[FILE] = 3
    teller.tell_new()
    teller.tell_new()
    assert teller.rows == [[FILE, 3, None]]
    names[FILE] = 5
    teller.tell_new()
    assert teller.rows[1:] == [[FILE, 5, None]]


def test_the_text_is_told_of_cells_in_which_time_was_spent(names: dict[str, int]) -> None:
    teller = Teller()
    names |= {FILE: 3, TYPED: 2}
    teller.tell_new()
    assert teller.rows == [[FILE, 3, None], [TYPED, 2, TEXT]]
    assert teller.owners.owner(FILE) == USERS  # a walk came through it
    teller.tell_new()
    assert teller.rows[2:] == [[FILE, 3, TEXT]]


def test_long_cells_are_told_without_their_text(
    names: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = (MAX_TEXT + 1, None, ["#" * (MAX_TEXT + 1)], TYPED)
    monkeypatch.setitem(linecache.cache, TYPED, entry)
    names[TYPED] = 2
    teller = Teller()
    teller.tell_new()
    assert teller.rows == [[TYPED, 2, None]]


def test_what_was_typed_at_the_prompt_is_the_users() -> None:
    owners = Teller().owners
    assert owners.owner(TYPED) == USERS
    assert owners.owner("<string>") != USERS


# -- the parent


def test_lines_of_cells_are_named_and_shown(tmp_path: Path) -> None:
    site = ["backward", FILE, 2, 2, 4, 800]
    typed = ["forward", TYPED, 1, 2, 4, 900]
    unknown = ["sync", "/tmp/ipykernel_7/9.py", 1, 1, 4, None]
    lines: list[Line] = [
        make_head(argv=["ipykernel_launcher.py"]),
        {"k": "s", "n": 28, "updates": 4, "sites": [site, typed, unknown]},
    ]
    cells = {"k": "cells", "pid": 1, "cells": [[FILE, 3, TEXT], [TYPED, 2, TEXT], [0, "odd"]]}
    again = {"k": "cells", "pid": 1, "cells": [[FILE, 5, None], ["<ipython-input-1-0a>", 1, None]]}
    files = {"rank-0.jsonl": lines, "processes.jsonl": [cells, again]}
    run = write_run(tmp_path / "run", files)
    write_source(run, cwd=str(tmp_path))
    source = read_source(run)
    assert source.texts == {
        (FILE, 2): "loss.backward()",
        (TYPED, 1): "import torch",
    }
    # The places of operators come from other lines than the source is read for.
    assert source.cells == {FILE: 5, TYPED: 2, "<ipython-input-1-0a>": 1}
    places = CodePlaces(cwd=str(tmp_path), source=source)
    assert places.where(FILE, 2) == "cell 5, line 2"
    assert places.name(unknown[1]) == unknown[1]


def test_a_place_in_a_cell_reads_as_people_say_it() -> None:
    assert place_text("train.py", 3) == "train.py:3"
    assert place_text("cell 3.py", 3) == "cell 3.py:3"
    site = Site(what="other", file="cell 3", line=4, end_line=9, calls_per_step=1)
    assert site.place == "cell 3, lines 4-9"
