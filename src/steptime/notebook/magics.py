"""What IPython gets from us: the magics, and two of its events around a cell.

`%%steptime` on the first line of a cell becomes a comment, and IPython runs the cell as it runs any
other: the same lines, results, errors and interrupts. Its event before the cell lets the guest in,
the one after the cell takes it out and shows the report.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from steptime.app.run.attempt import attempt
from steptime.core.devices.given_peaks import parse_peaks
from steptime.errors import SteptimeError, UsageError
from steptime.launch.values import CELL
from steptime.measure.values.model.profiled import DEFAULT_STEP, ProfileWish
from steptime.notebook.inline import Report
from steptime.notebook.observed_cell import CellOptions, ObservedCell, is_observed_already

NAME = "steptime"
USAGE = f"usage: {CELL} [--profile [STEP]] [--peak TYPE=TFLOPS] [--store DIR]"
_BELOW = f"{CELL} must be on the first line of its cell; this cell was not observed."
_ALREADY = (
    "this kernel runs under `steptime run`, which observes all of it; the cell ran as it is. "
    "The report of the whole run follows when the command ends."
)
_NOT_FOR_A_CELL = {
    "--count": "it would run the command again, and a cell cannot be run again without harm; what "
    "can be counted while a cell trains is in each report. Put the training into a file: "
    "steptime run --count -- python train.py",
    "--memory": "who holds the memory is in each report",
    "--json": "the document of a run is printed by: steptime show last --json",
    "--recipe": "a recipe is for a command: steptime run --recipe tuned.toml -- python train.py",
    "--live": "a notebook has no terminal",
    "--health": "its looks at each layer are for a command: steptime run --health -- python "
    "train.py; that a loss is not finite is in each report",
    "--report": "the report is shown below the cell; to write a page: steptime report last",
}


class _Parser(argparse.ArgumentParser):
    """Raises instead of exiting."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{CELL}: {message}.", hint=USAGE)


def parse_options(line: str) -> CellOptions:
    """Return what the first line of a cell asks for, behind the name of the magic.

    Raises:
        UsageError: it asks for something that is not there, or not for a cell.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{CELL}: {error}.", hint=USAGE) from error
    for word in words:
        reason = _NOT_FOR_A_CELL.get(word.partition("=")[0])
        if reason is not None:
            raise UsageError(f"{CELL} has no {word.partition('=')[0]}: {reason}.", hint=USAGE)
    parser = _Parser(prog=CELL, add_help=False, allow_abbrev=False)
    parser.add_argument("--profile", nargs="?", type=int, const=DEFAULT_STEP)
    parser.add_argument("--peak", action="append", default=[])
    parser.add_argument("--store", default=".")
    found = parser.parse_args(words)
    if found.profile is not None and found.profile < 1:
        message = f"--profile must be the number of a step, from 1 on, got {found.profile}."
        raise UsageError(f"{CELL}: {message}", hint=USAGE)
    return CellOptions(
        words=tuple(words),
        store=Path(found.store).expanduser(),
        profile=None if found.profile is None else ProfileWish(first_step=found.profile),
        peaks=parse_peaks(found.peak),
    )


def hide_first_line(lines: list[str]) -> list[str]:
    """Return a cell's lines with `%%steptime` as a comment, so that all keep their numbers.

    Another magic below it must come first in its own cell, so there the line is left out. Options
    that are wrong are left to the magic, which says what is wrong with them and runs nothing.
    """
    line = _options_in(lines[0]) if lines else None
    if line is None:
        return lines
    try:
        parse_options(line)
    except UsageError:
        return lines
    rest = lines[1:]
    return rest if rest and rest[0].startswith("%%") else [f"# {lines[0]}", *rest]


def _options_in(first: str) -> str | None:
    """Return the options of a cell by its first line; None if that is not our magic."""
    words = first.split(maxsplit=1)
    if not words or words[0] != CELL or not first.startswith(CELL):
        return None
    return words[1].strip() if len(words) > 1 else ""


class Magics:
    """Our part of one shell of IPython."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.observed: ObservedCell | None = None
        self.info: Any = None  # of the cell that is observed: cells may run cells

    def load(self) -> None:
        """Register everything."""
        for kind, function in (("cell", self.run_cell), ("line", self.show)):
            self.shell.register_magic_function(function, magic_kind=kind, magic_name=NAME)
        self.shell.input_transformers_cleanup.append(hide_first_line)
        self.shell.events.register("pre_run_cell", self.before)
        self.shell.events.register("post_run_cell", self.after)

    def unload(self) -> None:
        """Take everything back."""
        for kind in ("cell", "line"):
            self.shell.magics_manager.magics[kind].pop(NAME, None)
        self.shell.input_transformers_cleanup.remove(hide_first_line)
        self.shell.events.unregister("pre_run_cell", self.before)
        self.shell.events.unregister("post_run_cell", self.after)

    # -- events

    def before(self, info: Any) -> None:
        """Let the guest in, if the cell that is about to run asks for it."""
        lines = str(getattr(info, "raw_cell", "")).lstrip("\n").splitlines()
        if self.observed is not None or not lines:
            return
        words = _options_in(lines[0])
        if words is None:
            if any(_options_in(line) is not None for line in lines):
                self.say(_BELOW)
            return
        try:
            options = parse_options(words)
        except UsageError:
            return  # the magic says what is wrong
        if is_observed_already():
            self.say(_ALREADY)
            return
        self.observed, self.info = ObservedCell(options, text="\n".join(lines)), info
        self.observed.begin()

    def after(self, result: Any) -> None:
        """Take the guest out, and show the report."""
        if self.observed is None or getattr(result, "info", self.info) is not self.info:
            return
        observed, self.observed, self.info = self.observed, None, None
        error = getattr(result, "error_in_exec", None) or getattr(result, "error_before_exec", None)
        found = observed.end(error)
        notes = tuple(dict.fromkeys(observed.notes))
        if found is not None:
            with attempt(self.say):
                self.publish(Report(found, notes=notes))
        else:
            for note in notes:
                self.say(note)

    # -- magics

    def run_cell(self, line: str, cell: str) -> None:
        """Observe a cell that trains, and show below it what holds the training back.

        usage: %%steptime [--profile [STEP]] [--peak TYPE=TFLOPS] [--store DIR]

        It must be on the first line of the cell. The cell runs as it does without; the steps of
        its training are measured while it runs, and the report follows. Afterwards everything is
        as before. Each such cell is a run, like those of `steptime run`.

        --profile [STEP]    let torch's profiler run around three steps, from this one on (30)
        --peak TYPE=TFLOPS  the dense peak of the device for a type such as bf16 or tf32
        --store DIR         the folder that holds .steptime (default: the current folder)

        Such as:
          %%steptime
          %%steptime --profile 50 --peak bf16=312
          %steptime last
        """
        self.refuse_wrong(parse_options, line)
        self.shell.run_cell(f"{CELL} {line}\n{cell}")  # from a program: run_cell_magic

    def show(self, line: str) -> None:
        """Show the report of a run again.

        usage: %steptime ID [--store DIR]

        ID is the id of a run, the beginning of it, or `last` for the newest one.

        Such as:
          %steptime last
          %steptime 20261120-1015 --store ~/experiments
        """
        self.publish(self.refuse_wrong(_load, line))

    def refuse_wrong(self, act: Any, line: str) -> Any:
        """Do something with a line, and say in IPython's way what is wrong with it."""
        try:
            return act(line)
        except SteptimeError as error:
            from IPython.core.error import UsageError as ShownWithoutTraceback

            hint = "" if error.hint is None else f"\n{error.hint}"
            raise ShownWithoutTraceback(f"{error}{hint}") from None

    # -- output

    def publish(self, report: Report) -> None:
        """Show a report: HTML where the notebook can, text elsewhere."""
        self.shell.display_pub.publish(data=report.bundle(), metadata={})

    def say(self, text: str) -> None:
        """Show a sentence of ours below the cell."""
        self.shell.display_pub.publish(data={"text/plain": f"steptime: {text}"}, metadata={})


def _load(line: str) -> Report:
    """Return the report of the run that a line names."""
    from steptime.app.stored.load import load

    parser = _Parser(prog=f"%{NAME}", add_help=False, allow_abbrev=False)
    parser.error = _wrong_run  # type: ignore[method-assign]
    parser.add_argument("run")
    parser.add_argument("--store", default=".")
    try:
        found = parser.parse_args(shlex.split(line))
    except ValueError as error:
        _wrong_run(str(error))
    return Report(load(found.run, store=Path(found.store).expanduser()))


def _wrong_run(message: str) -> NoReturn:
    raise UsageError(f"%{NAME}: {message}.", hint=f"usage: %{NAME} ID, such as: %{NAME} last")


_LOADED: list[Magics] = []


def load_ipython_extension(shell: Any) -> None:
    """Add the magics to a shell of IPython, which calls this for `%load_ext steptime`."""
    if not _of(shell):
        magics = Magics(shell)
        magics.load()
        _LOADED.append(magics)


def unload_ipython_extension(shell: Any) -> None:
    """Take the magics out of a shell of IPython: `%unload_ext steptime`."""
    for magics in _of(shell):
        magics.unload()
        _LOADED.remove(magics)


def _of(shell: Any) -> Sequence[Magics]:
    return [one for one in _LOADED if one.shell is shell]
