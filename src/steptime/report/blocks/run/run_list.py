"""Makes the list of what a store holds: a row for each, and the command that shows the newest."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from steptime.core.printable import printable
from steptime.core.process_end import ProcessEnd
from steptime.core.units import format_bytes, format_count, format_seconds, format_speedup
from steptime.measure.values.run_summary import RunSummary
from steptime.report.blocks.values import Blank, Block, CommandLine, Labeled, TableBlock
from steptime.report.document.listings import ListDocument, StudySummary
from steptime.report.words.run import run_words
from steptime.report.words.run.advice import describe_opening
from steptime.report.words.run.show_words import show_command
from steptime.report.words.study.study_words import OUTCOMES

MAX_RUNS = 1000
"""More rows take more than a second to lay out, and people read fewer."""

_ABSENT = "–"


def kept_blocks(found: ListDocument, *, kind: str | None, store: str | None) -> list[Block]:
    """Return a table for each kind of which there is something; else how to make it.

    `kind` is the one that was asked for, and `store` is as for `run_list`.
    """
    is_empty = not (found.runs or found.studies or found.others)
    others = [
        [one.id, one.kind, format_bytes(one.bytes), printable(one.page or "")]
        for one in found.others
    ]
    parts: list[list[Block]] = [
        run_list(found.runs, store=store)
        if found.runs or (is_empty and kind in (None, "runs"))
        else [],
        study_list(found.studies, store=store) if found.studies or kind == "studies" else [],
        [TableBlock([""] * 4, others, left=2, name="Others", cut_last=True)] if others else [],
    ]
    if is_empty and kind not in (None, "runs", "studies"):
        return [Labeled("none", f"there are no {kind} yet")]
    return [block for part in parts if part for block in (Blank(), *part)][1:]


def run_list(rows: Sequence[RunSummary], *, store: str | None = None) -> list[Block]:
    """Return the list of runs as given, and the next command; of very many, only the first ones.

    `store` is the folder that holds the store, if that is not the one of this folder.
    """
    if not rows:
        return [
            CommandLine(
                "steptime run -- python train.py", lead="no runs yet; make one:", is_below=True
            )
        ]
    heading = ["run", "end", "diagnosis", "steps", "step time", "command"]
    num_older, rows = max(0, len(rows) - MAX_RUNS), rows[:MAX_RUNS]
    told = f"older runs that are not shown: {num_older:,}; --json has all"
    return [
        TableBlock(heading, [_cells(row) for row in rows], left=3, name="Runs", cut_last=True),
        *([Labeled("", told, style="dim")] if num_older else []),
        Blank(),
        CommandLine(show_command(rows[0].run_id, store=store), is_below=True),
    ]


def _cells(row: RunSummary) -> list[str]:
    steps = _ABSENT if row.num_steps is None else format_count(row.num_steps)
    is_alone = row.num_trainings is None or row.num_trainings < 2
    return [
        row.run_id,
        run_words.describe_short_end(
            ProcessEnd(state=row.state, exit_code=row.exit_code, signal=row.signal)
        ),
        describe_opening(row.kind, row.opens_with) or _ABSENT,
        steps if is_alone else f"{steps} (1 of {row.num_trainings})",
        _ABSENT if row.step_time_s is None else format_seconds(row.step_time_s),
        printable(shlex.join(row.command)),
    ]


def study_list(studies: Sequence[StudySummary], *, store: str | None = None) -> list[Block]:
    """Return the list of studies as given, and the next command; `store` is as for `run_list`."""
    if not studies:
        lead = "There are no studies yet. Make one:"
        return [CommandLine("steptime tune -- python train.py", lead=lead, is_below=True)]
    heading = ["study", "outcome", "speedup", "trials", "command"]
    rows = [_study_cells(study) for study in studies]
    return [
        TableBlock(heading, rows, left=2, name="Studies", cut_last=True),
        Blank(),
        CommandLine(show_command(studies[0].study_id, store=store), is_below=True),
    ]


def _study_cells(study: StudySummary) -> list[str]:
    outcome = OUTCOMES[study.outcome]
    if study.is_interrupted and study.outcome is None:
        outcome = "interrupted"
    claim = study.loop_speedup or study.speedup
    speedup = "–" if claim is None else format_speedup(claim.estimate)
    command = printable(shlex.join(study.command))
    return [study.study_id, outcome, speedup, format_count(study.num_trials), command]
