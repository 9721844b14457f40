"""Finds places in the user's code and what happened there: sites, compiling, switches, errors.

In: the busiest rank, and the records of the run. Out: values of `measure.values.observations`, with
files named relative to the command's folder. `diagnose` judges them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from steptime.core.stats import median
from steptime.measure.source.kept_results import KEPT_GRAPH, KEPT_TENSORS
from steptime.measure.source.pad_calls import TO_LENGTH
from steptime.measure.steps.loops_apart import loops_apart
from steptime.measure.values.measurement import SPANS, Span
from steptime.measure.values.model.attention_call import AttentionCall
from steptime.measure.values.observations import (
    Compilation,
    CompileEvent,
    HeldObjects,
    LoaderUse,
    Operators,
    ScriptError,
    Site,
    Suspicion,
    Switch,
    ZeroInput,
    cell_name,
    place_text,
)
from steptime.record.places import NS

if TYPE_CHECKING:
    from steptime.measure.fold.run_records import ErrorSeen, RunRecords
    from steptime.measure.fold.seen_lines import SitesSeen
    from steptime.measure.source.scan import Source
    from steptime.measure.steps.step_fold import RankSteps
    from steptime.record.rows import EventRow, SiteRow

MAX_TIMED_SITES = 20
MAX_COUNTED_SITES = 10
"""At most thirty sites; calls that are only counted have a share, since no time ranks them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodePlaces:
    """Names places in files as a reader in the command's folder would."""

    cwd: str | None
    source: Source

    def name(self, file: str) -> str:
        """Return the file's name, relative if it lies below the folder; `cell 3` for a cell."""
        number = self.source.cells.get(file)
        if number is not None:
            return cell_name(number)
        path = PurePath(file)
        is_below = self.cwd is not None and path.is_relative_to(self.cwd)
        return str(path.relative_to(self.cwd)) if is_below and self.cwd else file

    def where(self, file: str | None, line: int | None) -> str | None:
        """Return `file:line`, as far as it is known; `cell 3, line 5` in a cell."""
        if file is None:
            return None
        return self.name(file) if line is None else place_text(self.name(file), line)

    def padding_places(self) -> list[str]:
        """Return the lines that pad, as `file:line`; those that pad to a length come first."""
        marks = sorted(self.source.padding, key=lambda one: one.code != TO_LENGTH)
        return [f"{self.name(one.file)}:{one.line}" for one in marks]


def places_of(records: RunRecords) -> CodePlaces:
    """Return what names a run's places."""
    return CodePlaces(cwd=records.command.cwd, source=records.source)


# -- sites


def find_sites(rank: RankSteps, places: CodePlaces) -> tuple[Site, ...]:
    """Return where the time of steps and spans goes, with the longest of the run first.

    Sites that are only counted follow, by number. Those of a span have sums over the run. Rollouts
    are of the whole run where libraries tell of them, for early steps may hold others or none.
    """
    # A step without an optimizer is one row of the guest, like an update.
    num_rows = max(rank.num_steps, rank.num_seen_updates)
    whole = [seen for seen in rank.signals.spans if seen.what not in SPANS]
    per_step = 1 / max(1, rank.num_steps)
    found = [(rank.num_steps, _site(seen, places, per_step)) for seen in _merge(whole)]
    walked, known = _walked(rank), {*SPANS, *(seen.what for seen in whole)}
    if walked is not None:
        per_step = num_rows / rank.num_steps / walked.num_updates
        inside = [seen for seen in walked.sites if seen.what not in known]
        found += [(rank.num_steps, _site(seen, places, per_step)) for seen in _merge(inside)]
    spans = [seen for seen in rank.signals.spans if seen.what in SPANS]
    found += [(1, _site(seen, places, 1.0)) for seen in _merge(spans)]
    found = _reading(found, places)
    timed = [(num * site.s_per_step, site) for num, site in found if site.s_per_step is not None]
    counted = [(num * site.calls_per_step, site) for num, site in found if site.s_per_step is None]
    return (*_largest(timed, MAX_TIMED_SITES), *_largest(counted, MAX_COUNTED_SITES))


def _walked(rank: RankSteps) -> SitesSeen | None:
    """Return the places of the updates that were walked; of several loops, those of the longest."""
    seen, loops = rank.signals.sites, loops_apart(rank)
    if not loops:
        return seen
    own = set(loops[0].optimizers)
    every = [one for one in (seen, *rank.signals.late_sites) if one is not None]
    return next((one for one in every if one.optimizers and own.issuperset(one.optimizers)), None)


def _reading(found: list[tuple[int, Site]], places: CodePlaces) -> list[tuple[int, Site]]:
    """Return the sites with that of reading samples in the data set, where one class has a method.

    In worker processes nobody times the method, so its calls are those of the wait for a batch.
    """
    if len(places.source.reads) != 1:
        return found
    (mark,) = places.source.reads

    def moved(site: Site, s_per_step: float | None) -> Site:
        name = places.name(mark.file)
        line, text = mark.line, mark.text or None
        return replace(
            site,
            what="fetch",
            file=name,
            line=line,
            end_line=line,
            text=text,
            s_per_step=s_per_step,
        )

    if any(site.what == "fetch" for _, site in found):
        return [
            (num, moved(site, site.s_per_step) if site.what == "fetch" else site)
            for num, site in found
        ]
    waits = [(num, moved(site, None)) for num, site in found if site.what == "input_wait"]
    return [*found, *waits[:1]]


def _merge(sites: Iterable[SiteRow]) -> list[SiteRow]:
    """Return one row for each place."""
    merged: dict[tuple[str, str, int, int], SiteRow] = {}
    for site in sites:
        key = (site.what, site.file, site.line, site.end_line)
        merged[key] = _add(merged[key], site) if key in merged else site
    return list(merged.values())


def _add(known: SiteRow, other: SiteRow) -> SiteRow:
    """Return both rows together, without a time if one has none."""
    times_ns = [seen.total_ns for seen in (known, other) if seen.total_ns is not None]
    total_ns = sum(times_ns) if len(times_ns) == 2 else None
    return known._replace(calls=known.calls + other.calls, total_ns=total_ns)


def _site(seen: SiteRow, places: CodePlaces, factor: float) -> Site:
    return Site(
        what=seen.what,
        file=places.name(seen.file),
        line=seen.line,
        end_line=seen.end_line,
        calls_per_step=seen.calls * factor,
        s_per_step=None if seen.total_ns is None else seen.total_ns * NS * factor,
        text=places.source.texts.get((seen.file, seen.line)),
    )


def _largest(sized: list[tuple[float, Site]], num: int) -> list[Site]:
    # Equal rows are in the order of their places, so that the same folder gives the same value.
    ordered = sorted(sized, key=lambda p: (-p[0], p[1].what, p[1].file, p[1].line, p[1].end_line))
    return [site for _, site in ordered[:num]]


# -- operators and compiling


def find_operators(rank: RankSteps, places: CodePlaces) -> Operators | None:
    """Return the operators of one eager step; None if the guest wrote nothing of them."""
    if rank.signals.operators is None:
        return None
    num_updates, seen = rank.signals.operators
    loops = loops_apart(rank)
    if loops and num_updates - 1 not in loops[0].steps:
        return None  # of several loops, they are those of another one
    return replace(
        seen,
        zero_input=_zero_input(seen.zero_input, places),
        places=tuple(replace(one, file=places.name(one.file)) for one in seen.places),
    )


def _zero_input(seen: ZeroInput | None, places: CodePlaces) -> ZeroInput | None:
    if seen is None or seen.file is None:
        return seen
    return replace(seen, file=places.name(seen.file))


def find_compilation(
    rank: RankSteps, spans: Sequence[Span], places: CodePlaces
) -> Compilation | None:
    """Return what torch.compile did; None if the guest wrote nothing of it.

    Args:
        rank: the rank whose events count.
        spans: the spans of the same rank.
        places: names the places.
    """
    seen = rank.signals.compiled
    if seen is None:
        return None
    span = next((span for span in spans if span.name == "compile"), None)
    num_graphs, breaks, recompiles = seen
    return Compilation(
        num_graphs=num_graphs,
        num_steps_touched=span.num_steps_touched if span is not None else 0,
        total_s=span.total_s if span is not None else 0.0,
        breaks=tuple(_event(event, places) for event in breaks),
        recompiles=tuple(_event(event, places) for event in recompiles),
    )


def _event(seen: EventRow, places: CodePlaces) -> CompileEvent:
    return CompileEvent(
        reason=seen.reason, count=seen.num, where=places.where(seen.file, seen.line)
    )


# -- loaders


def name_loaders(loaders: Sequence[LoaderUse], places: CodePlaces) -> tuple[LoaderUse, ...]:
    """Return the loaders, with the lines that set what their data sets hold."""
    return tuple(
        replace(use, objects=tuple(_named(one, places) for one in use.objects)) for use in loaders
    )


def _named(held: HeldObjects, places: CodePlaces) -> HeldObjects:
    file = None if held.file is None else places.name(held.file)
    mark = places.source.held.get((held.holder, held.attribute))
    if mark is None:
        return replace(held, file=file)
    return replace(held, file=file, where=places.where(mark.file, mark.line), text=mark.text)


# -- the script


def find_switches(records: RunRecords, places: CodePlaces) -> tuple[Switch, ...]:
    """Return the debug switches that were on in any process that stepped."""
    names = {name for stream in records.streams for name in stream.signals.switches}
    lines: dict[str, str | None] = {}
    for seen in places.source.switches:
        lines.setdefault(seen.code, places.where(seen.file, seen.line))
    return tuple(Switch(name=name, where=lines.get(name)) for name in sorted(names))


def find_attention(rank: RankSteps, places: CodePlaces) -> tuple[AttentionCall, ...] | None:
    """Return how a rank computes attention; None where no update of it was looked into."""
    seen = rank.signals.attention
    if seen is None:
        return None
    return tuple(replace(call, where=places.where(at.file or None, at.line)) for call, at in seen)


def find_suspicions(rank: RankSteps, places: CodePlaces) -> tuple[Suspicion, ...]:
    """Return what looks wrong in the source, where what the run did agrees with it.

    Results of steps are kept whether or not gradients are accumulated.
    """
    is_accumulating = accumulates(rank)
    return tuple(
        Suspicion(
            code=seen.code,
            where=place_text(places.name(seen.file), seen.line),
            text=seen.text or "",
        )
        for seen in places.source.suspicions
        if is_accumulating or seen.code in (KEPT_GRAPH, KEPT_TENSORS)
    )


def accumulates(rank: RankSteps) -> bool:
    """Return whether one optimizer's usual step has several backward calls.

    The median decides: a batch that the script drops after its backward is no accumulation.
    Folded steps need not be asked, since they follow 20,000 that the guest did not fold.
    """
    optimizers = {optimizer for made in set(rank.steps.optimizers) for optimizer in made}
    if len(optimizers) != 1:
        return False
    return median(rank.steps.count("backwards")) > 1


def find_errors(records: RunRecords, places: CodePlaces) -> tuple[ScriptError, ...]:
    """Return the exceptions that ended processes, with the most updates first.

    An exception that several ranks raised at one place counts once.
    """
    seen = [(exit_.updates, exit_.error) for exit_ in records.exits if exit_.error is not None]
    errors: dict[tuple[str, str], ScriptError] = {}
    for num_updates, error in sorted(seen, key=lambda pair: (-pair[0], pair[1].text)):
        found = _error(error, places, num_updates=num_updates)
        errors.setdefault((found.type, found.where or found.text), found)
    return tuple(errors.values())


def _error(seen: ErrorSeen, places: CodePlaces, *, num_updates: int) -> ScriptError:
    return ScriptError(
        type=seen.type,
        text=seen.text,
        num_updates=num_updates,
        is_memory=seen.is_memory is True,
        where=places.where(seen.file, seen.line),
        phase=seen.phase,
        requested_bytes=seen.requested_bytes,
    )
