"""The ailment of ranks that called different collectives, and its words.

The sentence depends on what differs, so it is made here and not by a template.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from steptime.core.units import format_count
from steptime.diagnose.ailments.ailment import Ailment, Asked, by_facts
from steptime.diagnose.ailments.ranks.stalled import relevant_stalls
from steptime.diagnose.ailments.signals import count, make_finding
from steptime.diagnose.values.finding import Finding, Severity
from steptime.measure.values.desync import PASSING, CollectiveCall, Desync
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.observations import Site
from steptime.measure.values.stall import Stall

_AWAY: Mapping[str, tuple[str, str]] = {
    "left": ("has left", "have left"),
    "data": ("waits for data", "wait for data"),
    "python": ("is in Python", "are in Python"),
}
"""What one rank does, and what several do, that are in no collective."""

_BACKWARD = "backward"


def find_desync(measurement: Measurement) -> Finding | None:
    """No bottleneck of the step: the ranks wait for each other in different collectives."""
    found, stall = _worst(measurement)
    if found is None:
        return None
    # what a rank writes as it ends is no step of its own
    is_over = stall is not None and stall.duration_s is not None and found.what in PASSING
    finding = make_finding(
        DESYNC,
        severity=Severity.INFO if is_over else Severity.CRITICAL,
        evidence=(
            *(count("culprit_rank", rank) for rank in found.culprits[:1]),
            count("num_culprits", len(found.culprits)),
            *(
                ()
                if found.expected is None or found.expected.number is None
                else (count("call_number", found.expected.number),)
            ),
        ),
    )
    names = {"what": found.what, "told": describe_desync(found)}
    return replace(finding, names=names, where=found.where, site=_site(found.where))


def _worst(measurement: Measurement) -> tuple[Desync | None, Stall | None]:
    """Return the desync that ended the run, else that of the last stall that has one."""
    if measurement.desync is not None:
        return measurement.desync, None
    stalls = [stall for stall in relevant_stalls(measurement) if stall.desync is not None]
    # The last one is why the run ended, and what passed came before it.
    chosen = stalls[-1] if stalls else None
    return (None, None) if chosen is None else (chosen.desync, chosen)


def _site(where: str | None) -> Site | None:
    file, _, line = (where or "").rpartition(":")
    if not file or not line.isdigit():
        return None
    number = int(line)
    return Site(what="communication", file=file, line=number, end_line=number, calls_per_step=1.0)


def describe_desync(found: Desync) -> str:
    """Say what the culprits called, or where they are, and what the others called."""
    who, others = _ranks(found.culprits), _others(found)
    expected = describe_call(found.expected)
    if found.what in _AWAY:
        does = _AWAY[found.what][len(found.culprits) > 1]
        at = f" at {found.where}" if found.where and found.what != "left" else ""
        after = "" if found.last is None else f" after {describe_call(found.last)}"
        return f"{who} {does}{at}{after}, where {others} {_waited(found.expected, expected)}"
    called = describe_call(found.called)
    if found.what == "missing":
        return f"{who} left out {expected}, which {others} called, and called {called}"
    text = f"{who} called {called} where {others} {_waited(found.expected, expected)}"
    return f"{text}: the same calls in another order" if found.what == "order" else text


def _waited(call: CollectiveCall | None, words: str) -> str:
    if call is None or call.operation is None:
        at = "" if call is None or call.where is None else f" at {call.where}"
        return f"waited in a collective{at}"
    if call.operation == _BACKWARD:
        return f"waited in {words}"
    return f"called {words}"


def _others(found: Desync) -> str:
    return "the others" if len(found.others) > 1 else _ranks(found.others)


def _ranks(ranks: Sequence[int]) -> str:
    numbers = ", ".join(map(str, ranks))
    return f"rank {numbers}" if len(ranks) == 1 else f"ranks {numbers}"


def describe_call(call: CollectiveCall | None) -> str:
    """Return a call in words: `all_reduce #301 of 77 float32 at train.py:10`."""
    if call is None:
        return "a collective"
    parts = [call.operation or "a collective"]
    if call.number is not None:
        parts.append(f"#{call.number}")
    if call.elements is not None:
        parts.append(f"of {format_count(call.elements)} {call.dtype or 'elements'}")
    if call.group is not None:
        parts.append(f"in the group of {_ranks(call.group)}")
    if call.where is not None:
        parts.append(f"at {call.where}")
    return " ".join(parts)


DESYNC = Ailment(
    cause="desync",
    what="the ranks called different collectives, or one did not come to a call of the others",
    needs="several ranks; `stalls[].desync`, or a failed run",
    rule=find_desync,
    asked=Asked.ALWAYS,
    title="desync",
    sentence="{told}.",
    remedy="Let all ranks make the same calls in the same order.",
    when_contended=by_facts("What each rank called is no matter of time."),
)
AILMENTS = (DESYNC,)
CAUSES = tuple(row.cause for row in AILMENTS)
