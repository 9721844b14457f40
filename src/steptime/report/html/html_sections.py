"""Makes the parts of the page that are text and tables, readable without any script.

In: a Measurement, its Diagnosis, the record of its command. Out: markup, or None if there is
nothing to show. Words come from `words` and `advice`; other modules draw the plots.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import TypeVar

from rich.text import Text

from steptime.core.process_end import RunState
from steptime.core.units import (
    format_bytes,
    format_count,
    format_percent,
    format_seconds,
    format_value,
)
from steptime.diagnose.values.finding import Diagnosis, Finding
from steptime.launch.values import CommandRecord
from steptime.measure.values.measurement import (
    INNER_PHASES,
    Measurement,
    Phase,
    RankSummary,
)
from steptime.measure.values.observations import MemoryUse
from steptime.report.blocks.colors import class_of
from steptime.report.document.run_document import LeverTrial, RunDocument
from steptime.report.html.html_frame import tile
from steptime.report.html.html_tags import Html, bar, joined_html, table, tag
from steptime.report.text.finding_trials import trial_of
from steptime.report.text.memory_lines import fit_lines, memory_lines
from steptime.report.text.page import LABEL_WIDTH, Page, unwrapped_page
from steptime.report.text.run_text import outliving_lines, recipe_lines
from steptime.report.text.tables import phase_place, unseen_lines
from steptime.report.text.wall_lines import span_lines, worker_lines
from steptime.report.words import run_words, step_words
from steptime.report.words.advice import next_act, opening_findings
from steptime.report.words.edit_words import describe_edit
from steptime.report.words.gain_words import describe_gain, describe_trial

T = TypeVar("T")

_ABSENT = "–"
_MAX_RANKS = 64
"""Nobody reads a page with a thousand rows; the JSON has them."""


def header(run: RunDocument) -> Html:
    """Show the command, and how the run went, in one line."""
    m, gain = run.measurement, run.recipe_gain
    started = datetime.fromtimestamp(m.started_unix_s, tz=timezone.utc)
    facts = [m.run_id, f"started {started:%Y-%m-%d %H:%M} UTC", step_words.describe_run_end(m)]
    is_good = m.end.state in (RunState.FINISHED, RunState.RUNNING, RunState.STILL_TRAINING)
    return tag(
        "header",
        tag("p", tag("b", "steptime"), " report of one run", class_="dim"),
        tag("h1", tag("code", joined_html(_words(m.command), between=" "))),
        tag("p", " · ".join(facts), class_="dim" if is_good else "bad"),
        told_part(m, (recipe_lines, outliving_lines)),
        None if gain is None else tag("p", f"The recipe: {describe_gain(gain)}."),
    )


def _words(command: Sequence[str]) -> list[Html]:
    """Let lines break between words, not at each dash."""
    return [tag("span", shlex.quote(word), class_="word") for word in command]


def verdict(m: Measurement, diagnosis: Diagnosis | None, *, store: str | None = None) -> Html:
    """Say what holds the run back, and what to do next."""
    opening = opening_findings(diagnosis)
    act = next_act(m, diagnosis, store=store)
    parts: list[Html | None] = []
    if m.errors and m.end.state is not RunState.FINISHED:
        is_own = run_words.is_interrupt(m.errors[0])  # no failure, whoever pressed Ctrl-C
        text = run_words.describe_error(m.errors[0])
        parts.append(tag("p", text, class_=None if is_own else "bad"))
    for finding in opening:
        parts += [_finding(m, finding), _evidence(finding)]
    if not opening and diagnosis is not None:
        parts.append(tag("h2", run_words.describe_title(diagnosis.kind)))
    parts += [tag("p", act.sentence), tag("pre", act.command)]
    severity = opening[0].severity.value if opening else "info"
    return tag("div", *parts, class_=f"card {severity}")


def _finding(m: Measurement, finding: Finding) -> Html:
    text = run_words.describe_finding(finding, step_words.usual_step_s(m))
    text = text[:1].upper() + text[1:]  # elsewhere it follows a colon
    parts = [tag("h2", run_words.describe_heading(finding)), tag("p", text)]
    if finding.edit is not None:
        parts += [tag("p", f"{describe_edit(finding.edit)}:"), tag("pre", finding.edit.diff)]
    return joined_html(parts)


def tiles(run: RunDocument, *, energy_j: float | None = None) -> Html:
    """Return the few numbers that people look for first; `energy_j` is the energy of a step."""
    m, found = run.measurement, list[Html]()
    if m.steady is not None and m.steady.step_time_s is not None:
        time = m.steady.step_time_s
        found.append(
            tile("step time", format_seconds(time.estimate), step_words.describe_median(time))
        )
    if run.throughput is not None:
        found.append(tile("throughput", *step_words.describe_throughput(run.throughput)))
    found.append(tile("steps", format_count(m.num_steps), _counted(m)))
    if m.num_ranks > 1:
        found.append(tile("ranks", format_count(m.num_ranks), "processes that step"))
    waits = next((p for p in m.phases if p.name == "input_wait" and p.fraction is not None), None)
    if waits is not None:
        found.append(tile("input wait", format_percent(waits.fraction or 0.0), "of a step"))
    if m.host is not None:
        detail = f"of {m.host.num_cores} cores; others {format_count(m.host.others_cores)}"
        found.append(tile("kept busy", format_count(m.host.job_cores), detail))
    peak = max((r.host_memory.peak_bytes for r in m.ranks if r.host_memory), default=None)
    if peak is not None:
        found.append(tile("memory", format_bytes(peak), "peak of one rank, resident"))
    if energy_j is not None:
        found.append(tile("energy", f"{energy_j:.3g} J", "of the devices, a step"))
    return tag("div", *found, class_="tiles")


def _counted(m: Measurement) -> str:
    if m.steady is None:
        return "on each rank" if m.num_ranks > 1 else ""
    return step_words.describe_counted(m.steady, m.num_steps)


def phases_part(m: Measurement) -> Html | None:
    """Show where a step's time goes: one bar, and one row for each phase."""
    seen = sorted((p for p in m.phases if p.median_s is not None), key=phase_place)
    if not seen:
        return None
    has_device = any(p.device_mean_s is not None for p in seen)
    heading = ["phase", "", "share", "mean", "CPU", "device"]
    rows = [_phase_cells(phase, m) for phase in seen]
    if not has_device:
        heading, rows = heading[:-1], [row[:-1] for row in rows]
    outer = [p for p in seen if p.name not in INNER_PHASES]
    parts: list[Html | None] = [
        tag("div", bar((class_of(p.name), p.fraction or 0.0) for p in outer), class_="whole"),
        tag("div", table(heading, rows, left=2, name="Phases of a step"), class_="phases"),
    ]
    spans = (span_lines,) if m.wall_time is None else ()  # else a section of its own has them
    parts.append(told_part(m, (worker_lines, unseen_lines, *spans)))
    return joined_html(parts)


def _phase_cells(phase: Phase, m: Measurement) -> list[Html | str]:
    name = tag(
        "span",
        tag("i", class_=f"dot {class_of(phase.name)}"),
        run_words.describe_phase(phase.name),
        class_="inner" if phase.name in INNER_PHASES else None,
    )
    fraction = phase.fraction or 0.0
    places = [site.place for site in m.sites if site.what == phase.name][:1]
    where = tag("code", places[0], class_="dim") if places else ""
    return [
        name if not places else joined_html([name, " ", where]),
        bar([(class_of(phase.name), fraction)]),
        _ABSENT if phase.fraction is None else format_percent(fraction),
        _seconds(phase.mean_s),
        _seconds(phase.cpu_mean_s),
        _seconds(phase.device_mean_s),
    ]


def _seconds(value_s: float | None) -> str:
    return _ABSENT if value_s is None else format_seconds(value_s)


def ranks_part(m: Measurement) -> Html | None:
    """Return one row per rank, bars on one scale: the others wait for the rank that waits least."""
    if len(m.ranks) < 2:
        return None
    longest_s = max((sum(_outer_medians(r).values()) for r in m.ranks), default=0.0)
    heading = ["rank", "a step's time", "step", "input wait", "communication", "CPU", "steps"]
    rows = [_rank_cells(rank, longest_s) for rank in m.ranks[:_MAX_RANKS]]
    whole = table(heading, rows, left=2, name="Ranks")
    if len(m.ranks) <= _MAX_RANKS:
        return whole
    more = f"More ranks in the document of --json: {len(m.ranks) - _MAX_RANKS}."
    return joined_html([whole, tag("p", more, class_="dim")])


def _outer_medians(rank: RankSummary) -> dict[str, float]:
    phases = sorted(rank.phases, key=phase_place)
    return {p.name: p.median_s for p in phases if p.median_s and p.name not in INNER_PHASES}


def _rank_cells(rank: RankSummary, longest_s: float) -> list[Html | str]:
    medians = _outer_medians(rank)
    scale = longest_s or 1.0
    return [
        str(rank.rank),
        bar((class_of(name), value / scale) for name, value in medians.items()),
        _seconds(rank.step_time_s.estimate if rank.step_time_s else None),
        _seconds(medians.get("input_wait")),
        _seconds(medians.get("communication")),
        _seconds(rank.step_cpu_s.estimate if rank.step_cpu_s else None),
        format_count(rank.num_steps),
    ]


def findings_part(run: RunDocument) -> Html | None:
    """Return all findings except those that the page opens with."""
    if run.diagnosis is None:
        return None
    opening = opening_findings(run.diagnosis)
    parts = [
        tag(
            "div",
            _finding(run.measurement, finding),
            _trial(trial_of(finding, run)),
            _evidence(finding),
            class_=f"card {finding.severity.value}",
        )
        for finding in run.diagnosis.findings
        if not any(finding is one for one in opening)
    ]
    return joined_html(parts) if parts else None


def _trial(trial: LeverTrial | None) -> Html | None:
    if trial is None or trial.command is None:
        return None
    return joined_html([tag("p", describe_trial(trial)), tag("pre", trial.command)])


def _evidence(finding: Finding) -> Html | None:
    rows = [[e.name.replace("_", " "), format_value(e.value, e.unit)] for e in finding.evidence]
    if not rows:
        return None
    shown = table(["evidence", "value"], rows, name="Evidence")
    return tag("details", tag("summary", "The numbers behind it"), shown)


def memory_part(run: RunDocument) -> Html | None:
    """Show the memory of each rank's process and of its device, then who holds it."""
    m = run.measurement
    rows = [
        [f"{rank.rank}", where, *_memory_cells(use)]
        for rank in m.ranks[:_MAX_RANKS]
        for where, use in (
            ("resident", rank.host_memory),
            ("allocated on the device", rank.device_memory),
        )
        if use is not None
    ]
    heading = ["rank", "memory", "at first", "at last", "peak", "growth a step", "limit"]
    shown = table(heading, rows, left=2, name="Memory") if rows else None
    told = told_part(run, (memory_lines, fit_lines))
    return joined_html([shown, told]) if shown or told else None


def told_part(told_of: T, makers: Sequence[Callable[[T, Page], list[Text]]]) -> Html | None:
    """Return the lines of the terminal report as paragraphs, so that their words have one place."""
    page = unwrapped_page()
    lines = [line.plain for make in makers for line in make(told_of, page)]
    told = [(line[:LABEL_WIDTH].strip(), line[LABEL_WIDTH:]) for line in lines]
    parts = [
        tag("p", label and tag("span", f"{label} ", class_="dim"), text) for label, text in told
    ]
    return tag("div", *parts, class_="told") if parts else None


def _memory_cells(use: MemoryUse) -> list[str]:
    slope = use.slope_bytes_per_step
    is_sure = slope is not None and (slope.low > 0 or slope.high < 0)
    growth = format_bytes(slope.estimate) if slope is not None and is_sure else "none seen"
    return [
        format_bytes(use.first_bytes),
        format_bytes(use.last_bytes),
        format_bytes(use.peak_bytes),
        _ABSENT if slope is None else growth,
        _ABSENT if use.limit_bytes is None else format_bytes(use.limit_bytes),
    ]


def environment_part(m: Measurement, record: CommandRecord | None, *, version: str) -> Html:
    """Say where the command ran, with what, and what Steptime itself cost."""
    rows: list[tuple[str, str | None]] = []
    if record is not None:
        machine = record.machine
        rows += [
            ("folder", record.cwd),
            ("git revision", record.git_revision),
            ("processor", machine.cpu),
            ("cores", None if machine.num_cores is None else format_count(machine.num_cores)),
            ("memory", _bytes(machine.memory_bytes)),
            ("memory limit", _bytes(machine.memory_limit_bytes)),
        ]
    if m.ranks:
        first = m.ranks[0]
        threads = None if first.num_threads is None else format_count(first.num_threads)
        rows += [
            ("device", first.device),
            ("Python", first.python_version),
            ("torch", first.torch_version),
            ("threads of torch", threads),
        ]
    rows.append(("Steptime", version))
    if m.overhead is not None:
        cost = format_seconds(m.overhead.cpu_s_per_step)
        rows.append(("cost of the watching", f"{cost} of CPU a step"))
    found = [[n, v] for n, v in rows if v]
    shown = tag("div", table(["what", "value"], found, left=2, name="Environment"), class_="facts")
    notes = [tag("li", run_words.describe_note(note)) for note in m.notes]
    names = () if record is None else record.environment_names
    return joined_html(
        [
            shown,
            tag("ul", *notes, class_="notes") if notes else None,
            tag(
                "details",
                tag("summary", f"Names of the {len(names)} environment variables"),
                tag("p", ", ".join(names), class_="dim"),
            )
            if names
            else None,
        ]
    )


def _bytes(value: int | None) -> str | None:
    return None if value is None else format_bytes(value)
