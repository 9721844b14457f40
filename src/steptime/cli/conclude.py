"""The end of `steptime run`: fold, save, report.

Each act is tried by itself: a full disk costs the saved files, not the report.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.app.run_listing import add_to_index
from steptime.cli.main import attempt
from steptime.cli.output import console_for, say, write_json
from steptime.cli.run import RunOptions
from steptime.core.store import write_value
from steptime.errors import NotFoundError, StoreError
from steptime.report.document.envelope import Envelope, ErrorItem, enclose
from steptime.report.document.run_document import RunDocument, run_envelope

if TYPE_CHECKING:
    from rich.console import Console

    from steptime.cli.prepare import EndedRun
    from steptime.cli.results import Result


def conclude(
    options: RunOptions, ended: EndedRun | None, notes: list[str], *, exit_code: int
) -> None:
    """Report on the run, where and how the options say; `notes` are what went wrong so far."""
    result = attempt(lambda: _fold_and_save(options, ended, notes), tell=notes.append)
    for note in dict.fromkeys(notes):  # a full disk says the same of each file
        _tell(note)
    if result is not None:
        attempt(lambda: _report(options, result), tell=_tell)
    if options.json is not None:
        document = _document(result, notes, exit_code)
        attempt(lambda: write_json(str(options.json), document), tell=_tell)
    if result is not None and ended is not None and result.measurement.num_steps > 0:
        from steptime.cli.pages import offer_page

        # Last, for it takes longest and is the least to lose.
        attempt(lambda: offer_page(ended.run, result, told=notes), tell=_tell)


def _document(result: Result | None, notes: list[str], exit_code: int) -> Envelope[RunDocument]:
    if result is not None:
        m, diagnosis, picture = result.measurement, result.diagnosis, result.picture
        return run_envelope(m, diagnosis, command="run", exit_code=exit_code, picture=picture)
    item = ErrorItem(code="not_observed", message=" ".join(notes))
    return enclose("run", None, exit_code=exit_code, errors=(item,))


def _tell(note: str) -> None:
    say(f"steptime: {note}")


def _fold_and_save(options: RunOptions, ended: EndedRun | None, notes: list[str]) -> Result:
    if ended is None:
        raise StoreError("the command ran unobserved.")
    run = ended.run
    if not run.folder.is_dir():
        notes.clear()  # whatever failed, this is why
        raise NotFoundError(
            f"the run folder {run.folder} was deleted while the command ran; nothing to report."
        )
    if run.instead_of is not None:
        notes.append(f"{run.instead_of} cannot be written; the run is in {run.folder}")
    attempt(lambda: write_value(run, "command.json", ended.record), tell=notes.append)
    from steptime.cli.count_apart import count_apart, wants_count
    from steptime.cli.results import fold, save
    from steptime.measure.profile.profile_fold import pack_traces
    from steptime.measure.source.scan import write_source

    attempt(lambda: write_source(run.folder, cwd=ended.record.cwd), tell=notes.append)
    attempt(lambda: pack_traces(run.folder), tell=notes.append)
    result = fold(run, ended.end)
    if options.counts and wants_count(result):
        attempt(lambda: count_apart(run, ended.record), tell=notes.append)
        result = fold(run, ended.end)
    attempt(lambda: save(run, result), tell=notes.append)
    add_to_index(run)
    return result


def _report(options: RunOptions, result: Result) -> None:
    if options.report is not None:
        with Path(options.report).open("w", encoding="utf-8") as file:
            _render(options, result, console_for(file, is_plain=True))
    elif sys.stderr is not None:
        _render(options, result, console_for(sys.stderr))


def _render(options: RunOptions, result: Result, console: Console) -> None:
    from steptime.cli.counters import write_counters
    from steptime.report.text.empty_text import describe_empty, is_empty
    from steptime.report.text.run_text import render

    measurement, diagnosis = result.measurement, result.diagnosis
    if not is_empty(measurement):
        render(measurement, diagnosis, console=console, waterfall=result.picture.waterfall)
        write_counters(measurement, console, kernel=options.ncu, perf=options.perf)
        return
    text = f"steptime: {describe_empty(measurement, diagnosis)}"
    console.print(text, soft_wrap=True, markup=False, highlight=False)
