"""The Diagnosis of a run and its parts: kinds, findings, lasting shifts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from steptime.core.evidence import Evidence
from steptime.core.interval import Interval
from steptime.measure.values.observations import Site, SourceEdit


class BottleneckKind(str, Enum):
    """What a diagnosis may conclude; `style.md` section 3 has the list."""

    INPUT_BOUND = "INPUT_BOUND"
    HOST_BOUND = "HOST_BOUND"
    COMPUTE_BOUND = "COMPUTE_BOUND"
    MEMORY_BANDWIDTH_BOUND = "MEMORY_BANDWIDTH_BOUND"
    MEMORY_CAPACITY_BOUND = "MEMORY_CAPACITY_BOUND"
    COMMUNICATION_BOUND = "COMMUNICATION_BOUND"
    STRAGGLER = "STRAGGLER"
    IMBALANCE = "IMBALANCE"
    PADDING = "PADDING"
    CONTENDED = "CONTENDED"
    BALANCED = "BALANCED"
    INCONCLUSIVE = "INCONCLUSIVE"


class Severity(str, Enum):
    """How much a finding matters."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class HeldBy(str, Enum):
    """What a finding is judged by while other programs keep the cores busy."""

    FACTS = "facts"
    """Counts, bytes, the source: another program does not change them."""

    SAME_LOAD = "same_load"
    """Two times that the same load makes longer, so that it is not in their ratio."""

    CPU_TIME = "cpu_time"
    """CPU time, and wall time without what other programs may have taken of it."""

    NOTHING = "nothing"
    """It may be the other programs' doing, so it is no more than a hint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One diagnosed fact.

    Attributes:
        kind: bottleneck kind, or None where the finding is not a bottleneck.
        cause: machine word for the underlying cause.
        severity: how much it matters.
        evidence: the numbers that it is based on.
        where: file and line in the user's code, if known.
        where_text: that line as it is in the file.
        headroom_speedup: step time now over step time without the phase's exposed time.
        missing: signals that would make it more exact but were not observed.
        names: words beside the numbers: the `phase` of a change, the `dtype` of a headroom, the
            names of weights.
        held_by: what it is judged by, where other programs kept the cores busy; None where they
            did not.
        site: the same place as `where`, as file and lines; None where it is no line that was seen
            to run.
        edit: an edit of the script that removes the cause; None where none is certain.
    """

    kind: BottleneckKind | None
    cause: str | None
    severity: Severity
    evidence: tuple[Evidence, ...]
    where: str | None = None
    where_text: str | None = None
    headroom_speedup: float | None = None
    missing: tuple[str, ...] = ()
    names: Mapping[str, str] | None = None
    held_by: HeldBy | None = None
    site: Site | None = None
    edit: SourceEdit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The primary bottleneck kind, all findings with the most severe first, and lasting changes.

    Attributes:
        schema: version of the record.
        run_id: name of the run's folder.
        kind: the primary bottleneck kind.
        findings: all findings, most severe first.
        shifts: lasting changes of the step time, in order.
    """

    schema: int
    run_id: str
    kind: BottleneckKind
    findings: tuple[Finding, ...]
    shifts: tuple[Shift, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """The step time changed at one step and stayed so.

    Attributes:
        rank: the rank whose steps were examined.
        index: index of the first step that is different.
        t_unix_s: when that step was made [s since 1970].
        before_s: median step time before [s].
        after_s: median step time after [s].
        ratio: step time after over step time before.
        causes: what changed with it, the best explanation first: `neighbor`, `cpu_clock`,
            `device_clock`, `throttle`, `page_cache`, `memory`, `swap`, `disk`,
            `input_size`, `phase:NAME`.
    """

    rank: int
    index: int
    t_unix_s: float
    before_s: float
    after_s: float
    ratio: Interval
    causes: tuple[str, ...] = ()
