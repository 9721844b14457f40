"""Makes the report of a run: what a person reads on one screen, and everything behind it.

In: the document of a run. Out: a Sheet, whose sections are a visible list. On a terminal a section
of a high rank goes first; the first line, the throughput, the machine and the next command stay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timezone

from rich.text import Text

from steptime.compare.values import Comparison
from steptime.core.printable import printable
from steptime.core.process_end import RunState
from steptime.diagnose.ailments.contention import is_of_machine
from steptime.diagnose.values.finding import Diagnosis, Finding, Shift
from steptime.diagnose.values.reach_values import Roofline, Waterfall
from steptime.launch.values import CommandRecord
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.over_time import RunSeries
from steptime.measure.values.stall import Stall
from steptime.report.blocks.compare.comparison_report import previous_blocks
from steptime.report.blocks.phrasing import joined
from steptime.report.blocks.run.counted_steps import (
    asked_blocks,
    count_blocks,
    loop_blocks,
    more_blocks,
    per_step_blocks,
    stall_blocks,
    step_time_blocks,
    throughput_blocks,
    tiles,
)
from steptime.report.blocks.run.finding_blocks import (
    describe_gain,
    describe_proof,
    finding_blocks,
    site_blocks,
    trial_blocks,
)
from steptime.report.blocks.run.phase_blocks import phase_blocks, rank_blocks, unseen_blocks
from steptime.report.blocks.run.said_blocks import said_blocks
from steptime.report.blocks.run.stall_blocks import shift_table, stall_page
from steptime.report.blocks.run.stopped_blocks import stopped_blocks
from steptime.report.blocks.run.training_blocks import shell_words, training_blocks
from steptime.report.blocks.run.wall_blocks import (
    machine_blocks,
    wall_blocks,
    wall_table,
    worker_blocks,
)
from steptime.report.blocks.values import (
    Blank,
    Block,
    Code,
    CommandLine,
    Fold,
    Headline,
    Labeled,
    Section,
    Sheet,
)
from steptime.report.blocks.work.layer_blocks import layer_blocks, layer_table
from steptime.report.blocks.work.memory_blocks import (
    brief_memory,
    fit_blocks,
    memory_blocks,
    memory_tables,
    timeline_plot,
)
from steptime.report.blocks.work.padding_blocks import padding_blocks
from steptime.report.blocks.work.profile_blocks import profile_blocks
from steptime.report.blocks.work.waterfall_blocks import (
    roof_blocks,
    roofline_blocks,
    roofline_plot,
    waterfall_blocks,
)
from steptime.report.blocks.work.work_blocks import brief_work, work_blocks
from steptime.report.document.run_document import RunDocument
from steptime.report.words.run import run_words, step_words
from steptime.report.words.run.advice import choose_headline, next_act, opening_findings
from steptime.report.words.run.outliving_words import describe_outliving
from steptime.report.words.study.study_words import describe_lever

_NOTE_LINES, _MOST_LOOPS, _MOST_PHASES, _HEADLINE = 3, 3, 4, 3
_SMALL = 0.02
"""Phases below this share of a step have one line together where there is little room."""

STEPS, PHASES, MEMORY, WORK = "Steps", "Where a step's time goes", "Memory", "Work of a step"
ROOFS = "Operators under the roofs"
MACHINE, DEVICES = "The machine over time", "Devices over time"
RANKS = "Ranks"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFacts:
    """What is known of one run beyond its document; `version` is the version of Steptime.

    `store` is the folder that holds the store of the run, if that is not the store of this folder.
    `previous` compares the run before it of the same command with this one.
    """

    document: RunDocument
    record: CommandRecord | None
    series: RunSeries
    stalls: tuple[Stall, ...] = ()
    shifts: tuple[Shift, ...] = ()
    version: str = ""
    store: str | None = None
    previous: Comparison | None = None


def picture_report(document: RunDocument) -> Sheet:
    """Return where the time of a step went, and the operators under the roofs of the machine."""
    waterfall, roofline = document.waterfall or Waterfall(), document.roofline or Roofline()
    return Sheet(
        kind="run",
        command=document.measurement.command,
        facts=_facts(document.measurement),
        parts=[
            Section("Where did my MFU go", [Blank(), *waterfall_blocks(waterfall, roofline.roofs)]),
            Section(ROOFS, [Blank(), *roofline_blocks(roofline)]),
        ],
    )


def run_report(
    document: RunDocument, *, store: str | None = None, facts: PageFacts | None = None
) -> Sheet:
    """Return the report of one run; `store` is that of `show_command`, `facts` are for a page."""
    m = document.measurement
    act = next_act(m, document.diagnosis, store=store)
    then = CommandLine(act.command, "next", act.sentence, is_below=True)
    return Sheet(
        kind="run",
        command=m.command,
        facts=_dated(m),
        style="" if _is_good(m) else "yellow",
        is_headed=False,
        parts=[
            *_opening(document, then, None if facts is None else facts.series),
            *_steps(document, facts),
            *_time(document),
            *_others(document),
            *_rest(document, facts, store),
            *_work(document, store),
            Section("", [Blank(), then], only="terminal"),
        ],
    )


def _facts(m: Measurement) -> list[str]:
    return [m.run_id, step_words.describe_run_end(m), *([_device(m)] if m.ranks else [])]


def _dated(m: Measurement) -> list[str]:
    started = datetime.fromtimestamp(m.started_unix_s, tz=timezone.utc)
    first, *rest = _facts(m)
    return [first, f"started {started:%Y-%m-%d %H:%M} UTC", *rest]


def _is_good(m: Measurement) -> bool:
    return m.end.state in (RunState.FINISHED, RunState.RUNNING, RunState.STILL_TRAINING)


def _device(m: Measurement) -> str:
    device, threads = printable(m.ranks[0].device), m.ranks[0].num_threads
    if threads is None:
        return device
    return f"{device}, {threads} {'thread' if threads == 1 else 'threads'}"


# -- what it opens with


def _opening(document: RunDocument, then: CommandLine, series: RunSeries | None) -> list[Section]:
    """Say what holds the run back, and by what of the machine it lost time."""
    m, diagnosis = document.measurement, document.diagnosis
    first = None if diagnosis is None else choose_headline(diagnosis)
    told = _diagnosis(m, diagnosis, first)
    machine = machine_blocks(m, diagnosis)
    opening = opening_findings(diagnosis)
    if not any(map(is_of_machine, opening)):
        blocks = told
    elif opening[0] is first:  # a failure or a hang comes first
        blocks = [*told, *machine]
    else:
        blocks = [*machine, *told]
    energy_j = None if series is None else series.energy_per_step_j()
    return [
        Section(
            "",
            [*stopped_blocks(m), *_error(m), *blocks],
            34,
            "details",
            brief=[*stopped_blocks(m), *_error(m), *_in_short(blocks)],
        ),
        Section("", [then], only="page"),
        Section("", tiles(document, energy_j=energy_j), only="page"),
        Section("The run stood still", stall_blocks(m), 2, only="terminal"),
    ]


def _in_short(blocks: list[Block]) -> list[Block]:
    """Return headlines of a few lines, without the edits below them."""
    return [
        replace(one, max_lines=_HEADLINE) if isinstance(one, Headline) else one
        for one in blocks
        if not isinstance(one, Code | Fold)
    ]


def _diagnosis(m: Measurement, diagnosis: Diagnosis | None, first: Finding | None) -> list[Block]:
    if diagnosis is None or (first is not None and first.cause == "no_steps"):
        return []
    if first is None:
        return [Headline("diagnosis", run_words.describe_title(diagnosis.kind))]
    return finding_blocks(first, m, label="diagnosis")


def _error(m: Measurement) -> list[Block]:
    """Show the exception that ended the command, if it failed; the first of several."""
    if not m.errors or m.end.state is RunState.FINISHED:
        return []
    label = "ended" if run_words.is_interrupt(m.errors[0]) else "error"
    return [Labeled(label, run_words.describe_error(m.errors[0]), "yellow", max_lines=3)]


# -- steps and time


def _steps(document: RunDocument, facts: PageFacts | None) -> list[Section]:
    m = document.measurement
    opening = opening_findings(document.diagnosis)
    machine = [] if any(map(is_of_machine, opening)) else machine_blocks(m, document.diagnosis)
    return [
        Section(
            STEPS,
            step_time_blocks(m),
            36,
            "details",
            brief=step_time_blocks(m, is_brief=True),
        ),
        Section(STEPS, throughput_blocks(document.throughput)),
        Section("The machine", machine),
        Section(STEPS, layer_blocks(m), 6, "layers"),
        Section(STEPS, shift_table(() if facts is None else facts.shifts), only="page"),
        Section("Layers", layer_table(m), only="page"),
    ]


def _time(document: RunDocument) -> list[Section]:
    m = document.measurement
    brief = phase_blocks(m, small_fraction=_SMALL, most=_MOST_PHASES)
    table = Section(
        PHASES,
        [Blank(), *phase_blocks(m)],
        30,
        "small phases",
        brief=[Blank(), *brief],
        brief_rank=1,
    )
    return [
        table,
        Section(RANKS, rank_blocks(m.ranks), 4, brief=rank_blocks(m.ranks, limit=4), brief_rank=3),
        Section(PHASES, unseen_blocks(m), 52, "not seen"),
        Section(PHASES, worker_blocks(m), 33, "workers"),
        Section("Lines of the script", site_blocks(m), only="page"),
        Section("", [Blank()], only="terminal"),
    ]


# -- what else was found


def _others(document: RunDocument) -> list[Section]:
    """Return the findings that the report does not open with; the machine has its own line."""
    diagnosis, m = document.diagnosis, document.measurement
    if diagnosis is None:
        return []
    first = choose_headline(diagnosis)
    found = [f for f in diagnosis.findings if f is not first and not is_of_machine(f)]
    sections = []
    for number, one in enumerate(found):
        blocks = finding_blocks(one, m, label="also")
        sections.append(
            Section(
                "Also found",
                [*blocks, *trial_blocks(one, document)],
                25 + number,
                "other findings",
                brief=blocks[:1],
                brief_rank=8 + number,
            )
        )
    return sections


# -- the rest


def _rest(document: RunDocument, facts: PageFacts | None, store: str | None) -> list[Section]:
    m, previous = document.measurement, None if facts is None else facts.previous
    stalls = [] if facts is None else stall_page(facts.stalls, started_unix_s=m.started_unix_s)
    return [
        Section(
            "The run",
            _run_line(m),
            31,
            "the command",
            only="screen",
            brief=_run_line(m, max_lines=1),
        ),
        Section(
            "Trainings of this command",
            training_blocks(document, store=store),
            5,
            brief=training_blocks(document, limit=4, store=store),
            brief_rank=4,
        ),
        Section(
            "Beside the previous run",
            [] if previous is None else previous_blocks(previous),
            only="page",
        ),
        Section("The recipe", _recipe(document), 2),
        Section("Processes that go on", _outliving(m), 2),
        Section("The run stood still", stalls, only="page"),
        Section(STEPS, count_blocks(m), 32, "steps", brief=count_blocks(m, is_brief=True)),
        Section(
            STEPS,
            loop_blocks(m),
            41,
            "loops",
            brief=loop_blocks(m, limit=_MOST_LOOPS),
            brief_rank=7,
        ),
        Section(STEPS, asked_blocks(m), 14, "asked"),
        Section("Time of the run", wall_blocks(document), 40, "time of the run"),
        Section("Time of the run", wall_table(document), only="page"),
    ]


def _work(document: RunDocument, store: str | None) -> list[Section]:
    m, waterfall = document.measurement, document.waterfall
    roofline = document.roofline or Roofline()
    has_picture = waterfall is not None and waterfall.missing is None
    picture = waterfall_blocks(waterfall, roofline.roofs) if has_picture and waterfall else []
    return [
        Section(
            MEMORY,
            memory_blocks(document),
            60,
            "memory",
            brief=brief_memory(document),
            brief_rank=12,
        ),
        Section(MEMORY, fit_blocks(document), 2, "would fit"),
        Section(MEMORY, memory_tables(document), only="page"),
        Section(MEMORY, timeline_plot(m.memory), only="page"),
        Section(WORK, work_blocks(document), 61, "work", brief=brief_work(document), brief_rank=13),
        Section(
            WORK, roof_blocks(waterfall, run_id=m.run_id, store=store), 48, "roofs", only="terminal"
        ),
        Section("Where did my MFU go", picture, only="page"),
        Section(ROOFS, roofline_blocks(roofline) if roofline.points else [], only="page"),
        Section(ROOFS, roofline_plot(roofline), only="page"),
        Section("Lengths and padding", padding_blocks(document), 45, "padding"),
        Section("Per step", per_step_blocks(m), 58, "per step"),
        Section("Under the profiler", _profile(m), 54, "profile"),
        Section(
            "Said by libraries",
            said_blocks(m),
            47,
            "messages of libraries",
            brief=said_blocks(m, limit=1),
            brief_rank=14,
        ),
        Section("Notes", _notes(m), 55, "notes", brief=_notes(m, limit=1), brief_rank=15),
    ]


def _run_line(m: Measurement, *, max_lines: int | None = None) -> list[Block]:
    """Return the command, which run it is, how it ended, and where it trained."""
    command, facts = printable(shell_words(m.command)), _facts(m)
    end = joined(facts[1:2])
    text = Text(joined([facts[0], end, *facts[2:], command]))
    if m.end.state is not RunState.FINISHED:
        start = text.plain.index(end)
        text.stylize("yellow", start, start + len(end))
    return [Labeled("run", text, max_lines=max_lines)]


def _recipe(document: RunDocument) -> list[Block]:
    """Name the recipe that the run trained with, its levers, what was proven, and what it gave."""
    use, gain = document.measurement.recipe, document.recipe_gain
    blocks: list[Block] = []
    if use is not None:
        on = [describe_lever(one.name, one.settings) for one in use.levers if one.error is None]
        levers = printable(" + ".join(on) or "no lever is on")
        text = f"{printable(use.path)}: {levers} ({describe_proof(use)})"
        blocks.append(Labeled("recipe", text))
    if gain is not None:
        blocks.append(Labeled("gave", describe_gain(gain)))
    return blocks


def _outliving(m: Measurement) -> list[Block]:
    """Name the processes that go on although the command has returned."""
    if not m.outliving:
        return []
    return [Labeled("goes on", describe_outliving(m.outliving), style="yellow")]


def _profile(m: Measurement) -> list[Block]:
    blocks = profile_blocks(m)
    return [Blank(), *blocks] if blocks else []


def _notes(m: Measurement, *, limit: int | None = None) -> list[Block]:
    """Return the notes; one may hold the text of an exception, so it has three lines at most."""
    told = [run_words.describe_note(note) for note in m.notes]
    shown = [Labeled("note", text, max_lines=_NOTE_LINES) for text in told[:limit]]
    return [*shown, *more_blocks("notes", len(told) - len(shown))]
