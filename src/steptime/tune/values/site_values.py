"""Where in the source the things stand that levers change, as the observing trial saw them.

The guest tells them (`guest.trial.edit_sites`), a recipe keeps them, and `steptime patch` edits
them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_PLACE = re.compile(r"(?P<file>.+?):(?P<line>\d+)(?::(?P<column>\d+)-(?P<end>\d+):(?P<last>\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePlace:
    """A call in the source.

    Attributes:
        file: relative to the folder of the command where it lies in it, else absolute; a name in
            angle brackets for code that is in no file.
        line: of the call's first character, from 1; or of its statement, where columns are unknown.
        column: of the call's first character, from 0, in bytes of UTF-8. None before Python 3.11.
        end_line: of its last character.
        end_column: behind its last character.
    """

    file: str
    line: int
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None

    def __str__(self) -> str:
        """As a recipe has it: `train.py:30` or `train.py:30:12-30:48`."""
        if self.column is None:
            return f"{self.file}:{self.line}"
        return f"{self.file}:{self.line}:{self.column}-{self.end_line}:{self.end_column}"


def parse_place(text: str) -> SourcePlace:
    """The place that a text names.

    Raises:
        ValueError: it names none.
    """
    found = _PLACE.fullmatch(text)
    if found is None:
        raise ValueError(f"a place such as train.py:30:12-30:48 is needed, got {text!r}")
    numbers = {name: None if found[name] is None else int(found[name]) for name in _NUMBERS}
    return SourcePlace(
        file=found["file"],
        line=int(found["line"]),
        column=numbers["column"],
        end_line=numbers["end"],
        end_column=numbers["last"],
    )


_NUMBERS = ("column", "end", "last")


@dataclass(frozen=True, slots=True, kw_only=True)
class EditSite:
    """One place that a lever may have to change.

    Attributes:
        what: `optimizer` or `loader`, where one was made that trained; `model_call`, where a model
            was called with gradients.
        name: the class of the object.
        place: the call.
        callers: the calls that led to it, innermost first; of `model_call` alone.
        traits: words that an edit needs: `image:0` (an argument), `output:float`, `dataset:X`,
            `workers:4`, `tensor_dataset`, `in_memory` (whole batches can be taken out of it),
            `own_collate`, `iterable`, `shared` (the same call also made one that did not train),
            `block:X` (the class of repeated blocks), `no_blocks`, `hooked_blocks`,
            `unnamed_blocks`;
            `library`, `generated` or `notebook` for its file.
    """

    what: str
    name: str
    place: SourcePlace
    callers: tuple[SourcePlace, ...] = ()
    traits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EditSites:
    """The places of a command, and the files they stand in as they were then.

    Attributes:
        files: hash of each file's bytes, by the file's name as in `SourcePlace`.
        sites: the places.
    """

    files: Mapping[str, str]
    sites: tuple[EditSite, ...]
