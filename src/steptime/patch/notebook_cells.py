"""Finds the cell of a notebook that a place names, and writes the notebook with another text in it.

In: the made-up file name of a cell, and the notebooks that the command names. Out: a
`NotebookCell`. A kernel names a cell by a hash of its text, so one that is found is the one of the
proof.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from steptime.patch.values import CannotPlaceError
from steptime.record.regular_file import read_regular

_KERNELS = re.compile(r"(?:.*/)?ipykernel_\d+/(?P<hash>\d+)\.py")
_TYPED = re.compile(r"<ipython-input-\d+-(?P<hash>[0-9a-f]{12})>")
_MAGIC = re.compile(r"^(?=[%!])", re.MULTILINE)
_MASK = "#steptime-keeps:"
_MASKED = re.compile(f"^{_MASK}", re.MULTILINE)

_SEED, _FACTOR = 0xC70F6907, 0x5BD1E995
"""Of the hash by which ipykernel names cells, for the debuggers of Jupyter."""


@dataclass(frozen=True, slots=True)
class NotebookCell:
    """A cell with code.

    Attributes:
        notebook: its file, as the command has it.
        index: in the notebook, from 0, texts included.
        number: as in `In [3]`, where the notebook runs from the top.
        text: what it holds.
    """

    notebook: str
    index: int
    number: int
    text: str

    @property
    def label(self) -> str:
        """What stands in the place of a file's name."""
        return f"{self.notebook}, cell {self.number}"

    @property
    def python(self) -> bytes:
        """The text as Python: lines for IPython alone are comments, on the same lines."""
        with suppress(SyntaxError, ValueError):
            ast.parse(self.text)
            return self.text.encode()
        return _MAGIC.sub(_MASK, self.text).encode()


def text_of(python: bytes) -> str:
    """The text of a cell again, from `NotebookCell.python`."""
    return _MASKED.sub("", python.decode())


def is_cell(file: str) -> bool:
    """Whether a file's name was made up for a cell."""
    return bool(_KERNELS.fullmatch(file) or _TYPED.fullmatch(file))


def read_cells(command: tuple[str, ...], *, folder: Path) -> tuple[NotebookCell, ...]:
    """The cells with code of the notebooks that a command names, in their order."""
    found: list[NotebookCell] = []
    for before, word in pairwise(("", *command)):
        if word.endswith(".ipynb") and not word.startswith("-") and before != "--output":
            with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
                found += _cells_in(word, _read(folder / word))
    return tuple(found)


def find_cell(cells: tuple[NotebookCell, ...], file: str) -> NotebookCell:
    """The cell that was compiled under a file name.

    Raises:
        CannotPlaceError: there is none, or more than one.
    """
    kernels, typed = _KERNELS.fullmatch(file), _TYPED.fullmatch(file)
    found = [
        cell
        for cell in cells
        if (kernels and kernels["hash"] == str(hash_of_kernel(cell.text)))
        or (typed and typed["hash"] == _hash_of_prompt(cell.text))
    ]
    if len(found) == 1:
        return found[0]
    if found:
        where = " and ".join(cell.label for cell in found)
        raise CannotPlaceError(f"The cell of the proof ({file}) stands twice: {where}.")
    raise CannotPlaceError(
        f"It is called in a cell of a notebook ({file}) whose text is in no notebook that the "
        "command names, as it was at the proof: write the lines into that cell."
    )


def replace_texts(texts: Mapping[NotebookCell, str], *, folder: Path) -> dict[str, bytes]:
    """The notebooks with other texts in their cells; none that cannot be read any more."""
    found = {}
    for name in dict.fromkeys(cell.notebook for cell in texts):
        with suppress(OSError, ValueError, LookupError, TypeError):
            document = _read(folder / name)
            for cell, text in texts.items():
                if cell.notebook == name:
                    document["cells"][cell.index]["source"] = text
            found[name] = f"{json.dumps(document, ensure_ascii=False, indent=1)}\n".encode()
    return found


def hash_of_kernel(text: str) -> int:
    """The hash in the file name of a kernel's cell: MurmurHash2 of 32 bits."""
    data = text.encode()
    found, whole = _SEED ^ len(data), len(data) & ~3
    for start in range(0, whole, 4):
        part = int.from_bytes(data[start : start + 4], "little") * _FACTOR & 0xFFFFFFFF
        part = (part ^ part >> 24) * _FACTOR & 0xFFFFFFFF
        found = (found * _FACTOR & 0xFFFFFFFF) ^ part
    if whole < len(data):
        found = (found ^ int.from_bytes(data[whole:], "little")) * _FACTOR & 0xFFFFFFFF
    found = (found ^ found >> 13) * _FACTOR & 0xFFFFFFFF
    return found ^ found >> 15


def _hash_of_prompt(text: str) -> str:
    ended = text if text.endswith("\n") else f"{text}\n"
    return hashlib.sha1(ended.encode(), usedforsecurity=False).hexdigest()[:12]


def _read(path: Path) -> Any:
    return json.loads(read_regular(path))


def _cells_in(notebook: str, document: Any) -> list[NotebookCell]:
    found: list[NotebookCell] = []
    for index, cell in enumerate(document["cells"]):
        source = cell["source"]
        text = source if isinstance(source, str) else "".join(source)
        if cell["cell_type"] == "code" and text.strip():  # an empty one is not run
            found.append(NotebookCell(notebook, index, len(found) + 1, text))
    return found
