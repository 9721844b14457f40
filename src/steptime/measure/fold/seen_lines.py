"""What lines of a rank say, as values: memory, places, counts, compiling, windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from steptime.measure.values.model.work import Count
from steptime.record.loaders.batch_rows import SpentRow
from steptime.record.rows import SiteRow


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySample:
    """Memory of the process at `t` [ns on the head's clock]; counters count from its start.

    `peak` and `rss_peak` are the most so far, given out on the device and resident.
    """

    t: int
    bucket: int
    rss: int | None = None
    rss_peak: int | None = None
    minflt: int | None = None
    majflt: int | None = None
    stime_ns: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    peak: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SitesSeen:
    """The places of the updates in which frames were walked."""

    num_updates: int
    sites: tuple[SiteRow, ...]
    optimizers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpentSeen:
    """The stacks that were sampled until update `num_updates`, in `total_ns` of the run."""

    num_updates: int
    total_ns: int
    rows: tuple[SpentRow, ...]
    libraries: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLine:
    """A line of code with the file as the guest names it, which is empty outside the user's."""

    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSeen:
    """DDP's searches for unused parameters so far, and the iterations of which its data tell."""

    iterations: int
    with_unused: int
    searches: int = 0
    total_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakSeen:
    """The most that the storages of an update held at once."""

    bytes: int
    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CountSeen:
    """The work of an update, or of one of each optimizer; or why it is not known.

    `sizes` are the numbers of `record.buckets.SIZES`; an older guest had none. `is_double`:
    gradients of gradients were asked for. `has_guests`: another thread made a part of the graph, or
    an earlier update did. `is_whole`: everything in the update was counted. `peak`: None where its
    storages were not followed.
    """

    count: Count | None = None
    updates: int = 1
    missing: str | None = None
    optimizer: int | None = None
    sizes: tuple[int, ...] = ()
    is_double: bool = False
    has_guests: bool = False
    is_whole: bool = False
    peak: PeakSeen | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSeen:
    """A window under a profiler, with begin and end [ns on the head's clock], or why it is missing.

    `n` is the number of steps at its end, by the guest's own count.
    """

    n: int
    missing: str | None = None
    file: str | None = None
    steps: int = 0
    is_cut: bool = False
    is_mixed: bool = False
    t: tuple[int, ...] = ()
    end_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedSeen:
    """A question that was answered meanwhile, with begin and end [ns on the head's clock].

    `t` is empty where nothing was examined.
    """

    what: str
    missing: str | None = None
    t: tuple[int, ...] = ()
