"""What an edit stands on: the recipe's places, and the files behind them, read once.

In: a Recipe and the folder of its command. Out: sites with their files and calls.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import libcst as cst

from steptime.launch.script_files import named_files
from steptime.patch.changes import torch_name
from steptime.patch.notebook_cells import NotebookCell, find_cell, is_cell, read_cells
from steptime.patch.source_file import SourceFile, open_source
from steptime.patch.values import CannotPlaceError
from steptime.tune.values.recipe_values import Recipe
from steptime.tune.values.site_values import EditSite, SourcePlace

UNKNOWN_PLACES = (
    "The recipe does not say where in the source it acts: an older Steptime made it, or its trials "
    "did not tell."
)
_NO_FILES = {
    "library": "{name} is called inside an installed package ({file}), which is not yours to edit.",
    "generated": "{name} is called in code that is made at run time ({file}).",
}


@dataclass(frozen=True, slots=True)
class FoundSite:
    """One site, with its file and its call."""

    site: EditSite
    source: SourceFile
    call: cst.Call

    def words(self, kind: str) -> list[str]:
        """What follows `kind:` in the site's traits."""
        return words_of(self.site, kind)

    @property
    def where(self) -> str:
        """Such as `train.py:30`."""
        return f"{self.source.name}:{self.source.line_of(self.call)}"


def words_of(site: EditSite, kind: str) -> list[str]:
    """What follows `kind:` in a site's traits."""
    return [word.partition(":")[2] for word in site.traits if word.startswith(f"{kind}:")]


class Ground:
    """The places of one recipe."""

    def __init__(self, recipe: Recipe, *, folder: Path) -> None:
        self._recipe = recipe
        self._folder = folder
        self._sources: dict[str, SourceFile | CannotPlaceError] = {}
        self._cells = read_cells(recipe.script.command, folder=folder)
        self._opened: dict[NotebookCell, SourceFile] = {}

    @property
    def device(self) -> str:
        """The kind of device of the proof, as `torch.autocast` wants it."""
        return (self._recipe.proof.device or "cpu").partition(":")[0]

    def sites(self, what: str) -> tuple[EditSite, ...]:
        """All places of a kind.

        Raises:
            CannotPlaceError: the recipe has none.
        """
        if self._recipe.sites is None:
            raise CannotPlaceError(UNKNOWN_PLACES)
        found = tuple(site for site in self._recipe.sites.sites if site.what == what)
        if not found:
            raise CannotPlaceError(_NOT_SEEN[what])
        return found

    def source(self, name: str) -> SourceFile:
        """A file that may be edited.

        Raises:
            CannotPlaceError: it may not.
        """
        if name not in self._sources:
            files = self._recipe.sites.files if self._recipe.sites is not None else {}
            try:
                found = (
                    self._open_cell(find_cell(self._cells, name))
                    if is_cell(name)
                    else open_source(name, folder=self._folder, proven=files.get(name))
                )
            except CannotPlaceError as error:
                self._sources[name] = error
            else:
                self._sources[name] = found
        known = self._sources[name]
        if isinstance(known, CannotPlaceError):
            raise known
        return known

    # -- the cells of a notebook

    def _open_cell(self, cell: NotebookCell) -> SourceFile:
        if cell not in self._opened:
            self._opened[cell] = SourceFile(cell.label, cell.python)
        return self._opened[cell]

    def cell_of(self, source: SourceFile) -> NotebookCell | None:
        """The cell that a source is; None for a file."""
        return next((cell for cell, known in self._opened.items() if known is source), None)

    def cells_before(self, source: SourceFile) -> Iterator[SourceFile]:
        """The cells above one in its notebook, the nearest first; none for a file.

        Raises:
            CannotPlaceError: one of them is no Python.
        """
        here = self.cell_of(source)
        for cell in reversed(self._cells):
            if here is not None and cell.notebook == here.notebook and cell.number < here.number:
                yield self._open_cell(cell)

    def _first_cell(self) -> SourceFile:
        """The first cell that imports torch."""
        for cell in self._cells:
            with suppress(CannotPlaceError):
                source = self._open_cell(cell)
                if torch_name(source) is not None:
                    return source
        raise CannotPlaceError("No cell of the notebook begins with an import of torch.")

    # -- places

    def label(self, place: SourcePlace) -> str:
        """A place as a person finds it, such as `train.py:30` or `x.ipynb, cell 3:5`."""
        name = place.file
        if is_cell(name):
            with suppress(CannotPlaceError):
                name = find_cell(self._cells, name).label
        return f"{name}:{place.line}"

    def is_in(self, place: SourcePlace, source: SourceFile) -> bool:
        """Whether a place is in a source."""
        with suppress(CannotPlaceError):
            return self.source(place.file) is source
        return False

    def spot(self, site: EditSite) -> FoundSite:
        """A site with its file and its call.

        Raises:
            CannotPlaceError: there is no such call, or the file may not be edited.
        """
        for word, text in _NO_FILES.items():
            if word in site.traits:
                raise CannotPlaceError(text.format(name=site.name, file=site.place.file))
        source = self.source(site.place.file)
        name = "" if site.what == "model_call" else site.name
        return FoundSite(site, source, source.find_call(site.place, name=name))

    def call_at(self, place: SourcePlace) -> tuple[SourceFile, cst.Call]:
        """The call at a place, with its file.

        Raises:
            CannotPlaceError: there is no such call, or the file may not be edited.
        """
        source = self.source(place.file)
        return source, source.find_call(place, name="")

    def sources(self) -> list[SourceFile]:
        """All files of the proof that may be edited.

        Raises:
            CannotPlaceError: there is none; the reason is that of the first one.
        """
        if self._recipe.sites is None:
            raise CannotPlaceError(UNKNOWN_PLACES)
        found: list[SourceFile] = []
        reasons = []
        cells = {site.place.file for site in self._recipe.sites.sites if is_cell(site.place.file)}
        for name in (*sorted(self._recipe.sites.files), *sorted(cells)):
            try:
                found.append(self.source(name))
            except CannotPlaceError as error:
                reasons.append(error)
        if not found:
            raise reasons[0] if reasons else CannotPlaceError(UNKNOWN_PLACES)
        return found

    def main_source(self) -> SourceFile:
        """The file with which the command's Python starts; of a notebook, the cell.

        Raises:
            CannotPlaceError: it is not known, or may not be edited.
        """
        if self._cells:
            return self._first_cell()
        reason = CannotPlaceError("The command names no Python file of yours.")
        for name in self._main_names():
            try:
                return self.source(name)
            except CannotPlaceError as error:
                reason = error
        raise reason

    def _main_names(self) -> Iterator[str]:
        for word in named_files(self._recipe.script.command):
            if word.endswith(".py") and not word.startswith("-"):
                path = self._folder / word
                if path.is_file():
                    yield Path(os.path.relpath(path, self._folder)).as_posix()
        if self._recipe.sites is not None:  # a shell script starts it: whoever called first
            for site in self._recipe.sites.sites:
                if site.callers:
                    yield site.callers[-1].file


_NOT_SEEN = {
    "optimizer": "No call was seen that makes an optimizer.",
    "loader": "No call was seen that makes a DataLoader which feeds the training.",
    "model_call": "No call of a model was seen.",
}
