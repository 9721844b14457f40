"""Prints the terminal report: what a person reads on one screen after a run.

In: a Measurement and its Diagnosis. Out: lines on a console. The sections are a visible list;
words come from `words`, the next act from `advice`, layout from `page`, rows from `tables`.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rich.console import Console
from rich.text import Text

from steptime.core.printable import printable
from steptime.core.process_end import RunState
from steptime.core.units import format_percent, format_seconds
from steptime.diagnose.ailments.contention import is_of_machine
from steptime.diagnose.values.finding import Diagnosis, Finding
from steptime.diagnose.values.reach_values import Roofline, Waterfall
from steptime.measure.values.measurement import Measurement
from steptime.report.blocks.phrasing import joined, shortened
from steptime.report.document.run_document import RunDocument, Throughput
from steptime.report.text.edit_lines import edit_lines
from steptime.report.text.finding_trials import gain_lines, trial_lines
from steptime.report.text.health_lines import health_lines
from steptime.report.text.memory_lines import fit_lines, memory_lines
from steptime.report.text.padding_lines import padding_lines
from steptime.report.text.page import LABEL_WIDTH, Page, page_of
from steptime.report.text.profile_text import profile_lines
from steptime.report.text.stall_text import describe_stall
from steptime.report.text.tables import phase_lines, rank_lines, unseen_lines
from steptime.report.text.training_lines import training_lines
from steptime.report.text.wall_lines import COLORS, machine_lines, wall_lines, worker_lines
from steptime.report.text.waterfall_text import picture_lines, roof_lines
from steptime.report.text.work_lines import work_lines
from steptime.report.words import run_words, step_words
from steptime.report.words.advice import choose_headline, next_act, opening_findings
from steptime.report.words.answer_words import describe_asked
from steptime.report.words.outliving_words import describe_outliving
from steptime.report.words.recipe_words import describe_proof
from steptime.report.words.show_words import show_command
from steptime.report.words.study_words import describe_lever

MAX_LINES = 40
"""The number of lines that fit one screen."""

_WORTH_A_LINE = 0.03
"""The line of code of a phase below this share is not shown, because nobody needs to shorten it."""


_ALL = 1_000_000
"""More rows than any report has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Detail:
    """How much is shown; what is left out is counted or named, and is in the JSON."""

    num_findings: int = _ALL
    num_notes: int = 4
    num_ranks: int = 8
    small_fraction: float = 0.01
    num_trainings: int = 10
    num_loops: int = 6
    is_brief: bool = True
    without: frozenset[str] = frozenset()  # sections, by the names of `_NICETIES`


# Sections that explain nothing that a finding says, the least useful first.
_NICETIES = (
    *("counts", "overhead", "not seen", "padding", "roofs", "work"),
    *("beside", "memory"),
)
_SOME, _EVERY = frozenset(_NICETIES[:5]), frozenset(_NICETIES)
_LAST = _EVERY | {"small phases", "lines", "workers"}

_WHOLE = _Detail(num_notes=_ALL, num_ranks=_ALL, num_trainings=_ALL, num_loops=_ALL, is_brief=False)
"""Where the output is no terminal, nobody has to scroll: programs and files get all of it."""

_BARE = _Detail(small_fraction=0.1, num_notes=1, num_trainings=4, without=_LAST)
"""Findings and ranks alone."""

# These are tried in turn until the report fits a screen: what is nice to know goes first, findings
# and ranks go last. Phases below one hundredth of a step share a line even where there is room,
# because readers search for what is large.
_DETAILS = (
    _Detail(is_brief=False),
    _Detail(),
    _Detail(small_fraction=0.02, without=_SOME),
    _Detail(small_fraction=0.02, without=_EVERY),
    _Detail(small_fraction=0.05, without=_EVERY, num_notes=2, num_trainings=6),
    _BARE,
    replace(_BARE, num_ranks=4),
    *(replace(_BARE, num_findings=n, num_ranks=min(4, n)) for n in range(8, 0, -1)),
)


def render(document: RunDocument, *, console: Console, store: str | None = None) -> None:
    """Print the report of one run; on a terminal, at most `MAX_LINES` lines and those of a profile.

    `store` is the folder that holds the store of the run, if that is not the store of this folder.
    """
    page = page_of(console)
    profile = profile_lines(document.measurement, page)
    room = MAX_LINES + (len(profile) + 1 if profile else 0)  # with the empty line before it
    for detail in _DETAILS if console.is_terminal else (_WHOLE,):
        lines = _report(document, page=page, detail=detail, profile=profile, store=store)
        if len(lines) <= room:
            break
    page.write(lines)


def render_picture(document: RunDocument, *, console: Console) -> None:
    """Print where the time of a step went, and the operators under the roofs of the machine."""
    page = page_of(console)
    head = [*_header(document.measurement, page), Text()]
    waterfall, roofline = document.waterfall or Waterfall(), document.roofline or Roofline()
    page.write([*head, *picture_lines(waterfall, roofline, page)])


def _report(
    document: RunDocument, *, page: Page, detail: _Detail, profile: list[Text], store: str | None
) -> list[Text]:
    gap = [Text()]
    m, diagnosis = document.measurement, document.diagnosis
    primary, others = _split_findings(diagnosis)
    large = [p for p in m.phases if (p.fraction or 0.0) >= detail.small_fraction]
    table = phase_lines(large, page=page, small_fraction=detail.small_fraction)
    all_phases = phase_lines(m.phases, page=page, small_fraction=detail.small_fraction)
    nice = {
        "small phases": all_phases[len(table) :],
        "lines": _lines_of_code(m, page, small_fraction=detail.small_fraction),
        "not seen": unseen_lines(m, page),
        "beside": wall_lines(document, page),
        "workers": worker_lines(m, page),
        "work": work_lines(document, page),
        "padding": padding_lines(document, page),
        "roofs": roof_lines(
            document.waterfall, page, run_id=m.run_id, is_brief=detail.is_brief, store=store
        ),
        "memory": memory_lines(document, page, is_brief=detail.is_brief),
        "overhead": _overhead(m, page),
        "counts": _counts(m, page),
    }
    left_out = [name for name, lines in nice.items() if name in detail.without and lines]
    nice.update({name: [] for name in left_out})
    return [
        *_header(m, page),
        *training_lines(document, page, limit=detail.num_trainings, store=store),
        *recipe_lines(m, page),
        *gain_lines(document.recipe_gain, page),
        *outliving_lines(m, page),
        *_error(m, page),
        *gap,
        *_opening(m, diagnosis, primary, page),
        *_stalls(m, page),
        *_steps(m, page, num_loops=detail.num_loops),
        *_step_time(m, page),
        *throughput_lines(document.throughput, page),
        *health_lines(m, page),
        *(gap if all_phases else []),
        *table,
        *nice["small phases"],
        *nice["lines"],
        *nice["not seen"],
        *nice["beside"],
        *_asked(m, page),
        *(rank_lines(m.ranks, page=page, limit=detail.num_ranks) if m.num_ranks > 1 else []),
        *([] if "lines" in detail.without else gap),
        *_others(document, others, page, limit=detail.num_findings),
        *nice["workers"],
        *(line for name in ("work", "padding", "roofs", "memory") for line in nice[name]),
        *fit_lines(document, page),
        *nice["counts"],
        *([] if _is_disturbed(diagnosis) else machine_lines(m, diagnosis, page)),
        *nice["overhead"],
        *_notes(m, page, limit=detail.num_notes),
        *_sections_left_out(left_out, m.run_id, page, store),
        *(gap + profile if profile else []),
        *gap,
        *_next(m, diagnosis, page, store),
    ]


def _opening(
    m: Measurement, diagnosis: Diagnosis | None, primary: Finding | None, page: Page
) -> list[Text]:
    """Say what holds the run back, and by what of the machine it lost time."""
    told = [*_diagnosis(m, diagnosis, primary, page), *edit_lines(primary, page)]
    if not _is_disturbed(diagnosis):
        return told
    machine = machine_lines(m, diagnosis, page)
    is_last = opening_findings(diagnosis)[0] is primary  # a failure or a hang comes first
    return [*told, *machine] if is_last else [*machine, *told]


def _is_disturbed(diagnosis: Diagnosis | None) -> bool:
    return any(map(is_of_machine, opening_findings(diagnosis)))


def _sections_left_out(names: list[str], run_id: str, page: Page, store: str | None) -> list[Text]:
    """Name the sections that there is no room for, and the command that shows them."""
    if not names:
        return []
    text = Text(f"{', '.join(names)}; all of it: ", style="dim")
    return page.with_command("left out", text, f"{show_command(run_id, store=store)} | cat")


def _split_findings(diagnosis: Diagnosis | None) -> tuple[Finding | None, list[Finding]]:
    """Return the finding that the report opens with, and the others."""
    if diagnosis is None:
        return None, []
    first = choose_headline(diagnosis)
    # The line of the machine says what others took.
    others = (f for f in diagnosis.findings if not is_of_machine(f))
    return first, [finding for finding in others if finding is not first]


def _header(m: Measurement, page: Page) -> list[Text]:
    command = shortened(shlex.join(m.command), page.width - LABEL_WIDTH)
    end = step_words.describe_run_end(m)
    facts = Text(joined([m.run_id, end, *([_device(m)] if m.ranks else [])]))
    if m.end.state is not RunState.FINISHED:
        start = facts.plain.index(" · ") + len(" · ")
        facts.stylize("yellow", start, start + len(end))
    return [*page.block("steptime", Text(command, style="bold")), *page.block("run", facts)]


def recipe_lines(m: Measurement, page: Page) -> list[Text]:
    """Name the recipe that the run trained with, its levers, and what was proven for it."""
    use = m.recipe
    if use is None:
        return []
    on = [describe_lever(one.name, one.settings) for one in use.levers if one.error is None]
    proven = describe_proof(use)
    levers = printable(" + ".join(on) or "no lever is on")
    return page.block("recipe", f"{printable(use.path)}: {levers} ({proven})")


def outliving_lines(m: Measurement, page: Page) -> list[Text]:
    """Name the processes that go on although the command has returned."""
    if not m.outliving:
        return []
    return page.block("goes on", describe_outliving(m.outliving), style="yellow")


def _error(m: Measurement, page: Page) -> list[Text]:
    """Show the exception that ended the command, if it failed; the first of several."""
    if not m.errors or m.end.state is RunState.FINISHED:
        return []
    text = shortened(run_words.describe_error(m.errors[0]), 3 * (page.width - LABEL_WIDTH))
    label = "ended" if run_words.is_interrupt(m.errors[0]) else "error"
    return page.block(label, text, style="yellow")


def _device(m: Measurement) -> str:
    device, threads = printable(m.ranks[0].device), m.ranks[0].num_threads
    if threads is None:
        return device
    return f"{device}, {threads} {'thread' if threads == 1 else 'threads'}"


def _steps(m: Measurement, page: Page, *, num_loops: int) -> list[Text]:
    if m.num_steps == 0:
        return page.block("steps", "none was seen", style="bold")
    details = "; ".join(_step_details(m))
    number, on_ranks = step_words.describe_ranks(m)
    line = Text.assemble((number, "bold"), on_ranks, f" ({details})" if details else "")
    return [*page.block("steps", line), *_loops(m, page, limit=num_loops)]


def _loops(m: Measurement, page: Page, *, limit: int) -> list[Text]:
    """Say what each of several loops in one process does; the report is about one of them."""
    lines: list[Text] = []
    for loop in m.loops[:limit]:
        told = " (this report)" if loop.is_shown else ""
        text = f"{loop.number}{told}: {step_words.describe_loop(loop)}"
        lines += page.block("" if lines else "loops", printable(text))
    return lines + _left_out("loops", len(m.loops) - limit, page)


def _step_details(m: Measurement) -> Iterable[str]:
    if m.steady is not None:
        yield step_words.describe_counted(m.steady, m.num_steps)
    if m.num_optimizer_updates != m.num_steps:
        yield f"{m.num_optimizer_updates:,} optimizer updates"
    if m.num_backwards != m.num_optimizer_updates:
        yield f"{m.num_backwards:,} backward passes"
    if m.num_skipped_updates:
        yield f"{m.num_skipped_updates:,} updates skipped by the gradient scaler"
    if m.period is not None and m.period > 1:
        yield f"kinds of step repeat every {m.period}"


def _counts(m: Measurement, page: Page) -> list[Text]:
    text = step_words.describe_counts(m)
    return page.block("a step has", text) if text else []


def _step_time(m: Measurement, page: Page) -> list[Text]:
    if m.steady is None or m.steady.step_time_s is None:
        return []
    time, cpu = m.steady.step_time_s, m.steady.step_cpu_s
    line = Text.assemble(
        (format_seconds(time.estimate), "bold"),
        f"  {step_words.describe_median(time)}",
        "" if cpu is None else f" · CPU {format_seconds(cpu.estimate)}",
    )
    return page.block("step time", line)


def throughput_lines(found: Throughput | None, page: Page) -> list[Text]:
    """Say how many tokens, images or samples a second the steps train on, where it is known."""
    if found is None:
        return []
    rate, interval = step_words.describe_throughput(found)
    return page.block("throughput", Text.assemble((rate, "bold"), f"  {interval}"))


def _diagnosis(
    m: Measurement, diagnosis: Diagnosis | None, finding: Finding | None, page: Page
) -> list[Text]:
    if diagnosis is None or (finding is not None and finding.cause == "no_steps"):
        return []
    if finding is None:
        return page.block("diagnosis", Text(run_words.describe_title(diagnosis.kind), style="bold"))
    title = (run_words.describe_heading(finding), f"bold {COLORS[finding.severity]}")
    text = _finding_text(finding, m)
    return page.block("diagnosis", Text.assemble(title, f": {text}"))


def _stalls(m: Measurement, page: Page) -> list[Text]:
    """Say where each rank was in the worst stall; the end of a finished run is not a stall."""
    has_finished = m.end.state is RunState.FINISHED
    stalls = [s for s in m.stalls if s.duration_s is not None or not has_finished]
    if not stalls:
        return []
    worst = max(stalls, key=lambda one: one.duration_s or math.inf)
    lines: list[Text] = []
    for sentence in describe_stall(worst):
        lines += page.block("" if lines else "stalled", printable(sentence))
    return lines + _left_out("stalls", len(stalls) - 1, page)


def _finding_text(finding: Finding, m: Measurement) -> str:
    return printable(run_words.describe_finding(finding, step_words.usual_step_s(m)))


def _lines_of_code(m: Measurement, page: Page, *, small_fraction: float) -> list[Text]:
    """Say where in the user's code the larger phases are entered, in one paragraph."""
    large = {p.name for p in m.phases if (p.fraction or 0.0) >= max(small_fraction, _WORTH_A_LINE)}
    places: dict[str, str] = {}
    for site in m.sites:
        if site.what in large:
            places.setdefault(site.what, site.place)
    parts = [
        f"{run_words.describe_phase(name)} {printable(place)}" for name, place in places.items()
    ]
    return page.block("lines", joined(parts)) if parts else []


def _asked(m: Measurement, page: Page) -> list[Text]:
    """Name the steps that do not count because somebody asked meanwhile."""
    parts = list(map(describe_asked, m.asked[:_MAX_ASKED]))
    if len(m.asked) > len(parts):
        parts.append(f"and {len(m.asked) - len(parts):,} more")
    text = f"{', '.join(parts)}; these steps are in no figure"
    return page.block("asked", text) if parts else []


_MAX_ASKED = 3


def _others(
    document: RunDocument, findings: list[Finding], page: Page, *, limit: int
) -> list[Text]:
    m, lines = document.measurement, list[Text]()
    for finding in findings[:limit]:
        title = (run_words.describe_heading(finding), f"bold {COLORS[finding.severity]}")
        text = _finding_text(finding, m)
        lines += page.block("also", Text.assemble(title, f": {text}"))
        lines += [*edit_lines(finding, page), *trial_lines(finding, document, page)]
    return lines + _left_out("findings", len(findings) - limit, page)


def _left_out(what: str, count: int, page: Page) -> list[Text]:
    return (
        page.block("", f"more {what} in the document of --json: {count}", style="dim")
        if count > 0
        else []
    )


def _overhead(m: Measurement, page: Page) -> list[Text]:
    if m.overhead is None:
        return []
    text = f"Steptime itself took {format_seconds(m.overhead.cpu_s_per_step)} of CPU a step"
    if m.overhead.fraction is not None:
        text += f" ({format_percent(m.overhead.fraction)} of it)"
    return page.block("overhead", text)


def _notes(m: Measurement, page: Page, *, limit: int) -> list[Text]:
    lines: list[Text] = []
    for note in m.notes[:limit]:
        # A note may hold the text of an exception, so it has three lines at most.
        text = shortened(run_words.describe_note(note), 3 * (page.width - LABEL_WIDTH))
        lines += page.block("note", text)
    return lines + _left_out("notes", len(m.notes) - limit, page)


def _next(m: Measurement, diagnosis: Diagnosis | None, page: Page, store: str | None) -> list[Text]:
    act = next_act(m, diagnosis, store=store)
    return [*page.block("next", act.sentence), Text(" " * LABEL_WIDTH + act.command, style="bold")]
