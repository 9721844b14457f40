"""One run as it was observed: the value that `observe` and `load` return.

It holds the measurement, the diagnosis and what the run reaches of the machine, and turns them
into the report that the command line shows.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from steptime.record import files
from steptime.record.regular_file import open_regular
from steptime.report.text.plain_text import Shown

if TYPE_CHECKING:
    from rich.console import Console

    from steptime.core.store import Run
    from steptime.diagnose.values.finding import Diagnosis
    from steptime.diagnose.values.reach_values import Picture
    from steptime.machine.values.ceiling_values import Ceilings
    from steptime.measure.values.measurement import Measurement
    from steptime.measure.values.over_time import RunSeries
    from steptime.report.document.run_document import RunDocument, TrainingDocument


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ObservedRun(Shown):
    """A run, measured and diagnosed. `print(run)` shows the report of the terminal.

    Attributes:
        run: its id and its folder.
        measurement: what was seen of its steps.
        diagnosis: what holds it back, and why.
        picture: how close it comes to the machine's ceilings.
        ceilings: the figures of the machine that it was judged by; None if there are none.
        series: what is drawn over time, if the run was just folded.
        notes: sentences about what went wrong in observing it, and what differs from a recipe.
        parts: what was seen of each training of the command in the order of start, if there are
            several; the other fields are of one of them. See `trainings`.
    """

    run: Run
    measurement: Measurement
    diagnosis: Diagnosis
    picture: Picture
    ceilings: Ceilings | None = None
    series: RunSeries | None = None
    notes: tuple[str, ...] = ()
    parts: tuple[TrainingDocument, ...] = ()

    @property
    def trainings(self) -> tuple[ObservedRun, ...]:
        """Each training of the command, in the order of start; empty if no process stepped."""
        if not self.parts:
            return (self,) if self.measurement.num_steps else ()
        from steptime.diagnose.waterfall.step_waterfall import make_picture

        own = self.measurement.training
        return tuple(
            self
            if own is not None and own.number == part.number
            else replace(
                self,
                measurement=part.measurement,
                diagnosis=part.diagnosis,
                picture=make_picture(part.measurement, self.ceilings),
                series=None,
            )
            for part in self.parts
        )

    @property
    def run_id(self) -> str:
        """The id, which `steptime show` and `steptime.load` take."""
        return self.run.run_id

    @property
    def document(self) -> RunDocument:
        """The run as reports render it and as `--json` writes it."""
        from steptime.app.run.describe_run import describe_run

        gain = None
        if self.measurement.recipe is not None:  # few runs need what this loads
            from steptime.app.stored.recipe_gain import find_gain

            gain = find_gain(self.run, self.measurement)
        return describe_run(self.measurement, self.diagnosis, self.picture, self.parts, gain)

    @property
    def folder(self) -> Path:
        """The folder that holds the files of the run."""
        return self.run.folder

    @property
    def exit_code(self) -> int | None:
        """What a shell shows for it: the exit code, or 128 + signal; None while that is unknown."""
        end = self.measurement.end
        if end.exit_code is None and end.signal is not None:
            return 128 + end.signal
        return end.exit_code

    @property
    def goes_on(self) -> bool:
        """Whether the command has returned, and something that it started may still train."""
        return bool(self.measurement.outliving)

    def describe_rest(self) -> str:
        """Return a sentence about what goes on, and how to see the run again."""
        from steptime.report.words.run.outliving_words import describe_outliving, describe_return

        found = describe_outliving(self.measurement.outliving)
        return f"{found}; {describe_return(self.run_id, store=self.store_to_name)}"

    @property
    def store_to_name(self) -> str | None:
        """What `--store` must name for this run; None where its store is that of this folder."""
        from steptime.core.store import store_to_name

        return store_to_name(self.run.store)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was seen that could go into a report."""
        from steptime.report.blocks.run.empty_run import is_empty

        return is_empty(self.measurement)

    @property
    def output(self) -> str | None:
        """What the command wrote, if it was observed with `output="capture"`, otherwise None."""
        try:
            with open_regular(self.folder / files.OUTPUT, max_bytes=sys.maxsize) as file:
                return file.read().decode("utf-8", errors="replace")
        except OSError:
            return None

    def render(self, console: Console, *, is_whole: bool = False) -> None:
        """Write the report to a console of rich: what fits a terminal, or all of it."""
        if self.is_empty:
            text = self.describe_empty()
            console.print(text, soft_wrap=True, markup=False, highlight=False)
            return
        from steptime.report.text.print_run import render

        render(self.document, console=console, store=self.store_to_name, is_whole=is_whole)

    def describe_empty(self) -> str:
        """Return one paragraph for a run that `is_empty`."""
        from steptime.report.blocks.run.empty_run import describe_empty

        found = describe_empty(self.measurement, self.diagnosis, store=self.store_to_name)
        return f"steptime: {found}"

    def __repr__(self) -> str:
        training = self.measurement.training
        which = ""
        if training is not None and not training.is_alone:
            which = f", training {training.number} of {training.num_trainings}"
        return (
            f"<ObservedRun {self.run_id}{which}: {self.measurement.num_steps} steps, "
            f"{self.diagnosis.kind.value}>"
        )


def numbered_name(name: str, number: int | None) -> str:
    """Return the name of a file that is about one training: `report-2.html`; None: as it is."""
    path = PurePath(name)
    return name if number is None else f"{path.stem}-{number}{path.suffix}"
