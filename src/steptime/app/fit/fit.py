"""Says whether a command fits into a memory limit, and makes it fit.

In: a command and a limit. Out: a `FittedCommand`, a fit with the place of its recipe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.app.stored.page_file import try_page, write_page_file
from steptime.core.codec import decode
from steptime.core.devices.part_memory import PartMemory, find_parts, known_parts
from steptime.core.store import find_store
from steptime.errors import RecipeError, StoreError, UsageError
from steptime.record.regular_file import read_regular
from steptime.report.text.plain_text import Shown
from steptime.tune.fit.run_fit import DOCUMENT, FOLDERS, RECIPE, FitLimit, FitOptions, run_fit
from steptime.tune.recipe.recipe_file import check_output, read_recipe, render_recipe, write_recipe
from steptime.tune.trials.facts.resources import read_available_bytes
from steptime.tune.values.fit_values import FitStudy
from steptime.tune.values.study_values import State

if TYPE_CHECKING:
    from rich.console import Console

PAGE = "fit.html"

Tell = Callable[[str, State, float], None]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FittedCommand(Shown):
    """The result of a fit. `print(fitted)` shows the report of the terminal.

    Attributes:
        study: what was found.
        failure: why its recipe could not be written; None if it was, or there is none.
    """

    study: FitStudy
    failure: RecipeError | None = None

    def render(self, console: Console) -> None:
        """Write the report to a console of rich."""
        from steptime.report.blocks.fit.fit_report import fit_report
        from steptime.report.text.paint_text import print_report

        print_report(fit_report(self.study), console=console)

    def __repr__(self) -> str:
        return f"<FittedCommand {self.study.fit_id}: fits={self.study.fits}>"


def fit_command(asked: FitOptions, *, output: Path | None, tell: Tell) -> FittedCommand:
    """Run the fit, and write its recipe where the user wants it.

    Raises:
        SteptimeError: it cannot be run.
    """
    if output is not None:
        check_output(output)
    study = run_fit(asked, tell=tell)
    failure, text = None, None
    if study.is_made_to_fit:
        folder = find_store(asked.store, kind=FOLDERS) / FOLDERS / study.fit_id
        recipe = read_recipe(folder / RECIPE)
        text = render_recipe(recipe, name=RECIPE if output is None else output.name)
        if output is not None:
            try:
                write_recipe(output, recipe)
                study = replace(study, recipe_file=str(output))
            except RecipeError as error:
                failure = error
    return FittedCommand(study=_with_page(study, asked.store, text), failure=failure)


def _with_page(study: FitStudy, store: Path, recipe: str | None) -> FitStudy:
    """Write the page beside the trials."""

    def write() -> Path:
        folder = find_store(store, kind=FOLDERS) / FOLDERS / study.fit_id
        return write_fit_page(study, folder, recipe=recipe)

    page = try_page(write)
    return study if page is None else replace(study, page=str(page))


def read_fit(folder: Path) -> FitStudy:
    """Return the fit in a folder.

    Raises:
        DamagedRunError: it cannot be understood.
        StoreError: it cannot be read.
    """
    try:
        return decode(FitStudy, read_regular(folder / DOCUMENT), where=str(folder / DOCUMENT))
    except OSError as error:
        raise StoreError(f"the fit {folder.name} cannot be read: {error}") from error


def write_fit_page(
    study: FitStudy, folder: Path, *, target: Path | None = None, recipe: str | None = None
) -> Path:
    """Write the page into the fit's folder or to another file; return its path.

    Raises:
        StoreError: the file cannot be written.
    """
    from steptime.report.blocks.fit.fit_report import fit_report

    if recipe is None and (folder / RECIPE).is_file():
        recipe = render_recipe(read_recipe(folder / RECIPE), name=RECIPE)
    return write_page_file(fit_report(study, recipe=recipe), folder / PAGE, target)


def find_limit(size: int | None, *, on: str | None) -> FitLimit:
    """Return a limit of so many bytes, or what an accelerator has, or what is free here.

    Raises:
        UsageError: the accelerator is not known, or several parts of other sizes are meant.
        StoreError: the system does not say what is free.
    """
    if size is not None:
        return FitLimit(bytes=size, origin="given")
    if on is not None:
        return _limit_of_part(on)
    free = read_available_bytes()  # within the container
    if free is None:
        raise StoreError(
            "this system does not say how much memory is free.", hint="Name it: --memory-limit 8GiB"
        )
    return FitLimit(bytes=free, origin="machine")


def _limit_of_part(name: str) -> FitLimit:
    found = find_parts(name)
    if not found:
        raise UsageError(
            f"--on: the memory of `{name}` is not in the table.",
            hint=f"Name it instead (--memory-limit 24GiB), or one of: {', '.join(known_parts())}.",
        )
    if len({part.bytes for part in found}) > 1:
        several = ", ".join(part.name for part in found)
        raise UsageError(f"--on: `{name}` may be {several}.", hint="Name its size, too.")
    part: PartMemory = found[0]
    return FitLimit(bytes=part.usable_bytes, origin="part", part=part.name)
