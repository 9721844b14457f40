"""The values of `steptime data bench`: what the loader of a training costs, by part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from steptime.core.interval import Interval

FETCH, DECODE, TRANSFORM, COLLATE = "fetch", "decode", "transform", "collate"
PIN, COPY, CONSUMER = "pin", "copy", "consumer"

HELPS = 1.05
"""A bound below this is the training's own: the loader has no part in the step worth a change."""

IN_LOADER = (FETCH, DECODE, TRANSFORM, COLLATE)
"""The parts that workers do, each for batches of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchedLoader:
    """A loader that the script read from.

    Attributes:
        dataset: the class of its data set.
        place: the user's file and line that made the loader; None where no line of theirs did.
        batch_size: samples of a batch; None where the loader does not say.
        num_workers: its worker processes.
        is_iterable: whether the data set is iterated, and has no numbers of samples.
        num_samples: of the data set; None where it is iterable.
        pin_memory: whether it copies batches to pinned memory.
        num_bytes: of all samples as they are stored; known of a source alone, if at all.
    """

    dataset: str
    batch_size: int | None
    num_workers: int
    is_iterable: bool
    place: str | None = None
    num_samples: int | None = None
    pin_memory: bool = False
    num_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderPart:
    """One part of the way of a batch, without the parts inside it.

    Attributes:
        name: `fetch`, `decode`, `transform`, `collate`, `pin` or `copy`.
        wall_s: for a batch [s], in one process, with the bytes in the page cache; None where it was
            not measured.
        cpu_s: CPU time for a batch [s], of all threads; None where it was not measured.
        cold_wall_s: for a batch [s] with the files dropped from the page cache; None where that was
            not measured.
        missing: machine word of the reason why `wall_s` is None.
    """

    name: str
    wall_s: float | None = None
    cpu_s: float | None = None
    cold_wall_s: float | None = None
    missing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformCost:
    """One transform of a chain.

    Attributes:
        name: its class or function.
        place: the file and line where the script names it; None where that is not known.
        wall_s: for a batch [s].
        cpu_s: CPU time for a batch [s].
    """

    name: str
    wall_s: float
    cpu_s: float
    place: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSpan:
    """A part of the making of one sample, or of one batch that is read as a whole.

    Attributes:
        part: `fetch`, `decode`, or the name of a transform.
        start_s: since the sample was asked for [s].
        end_s: the end [s]; parts lie inside each other.
    """

    part: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersPoint:
    """What the loader alone gives with a number of workers.

    Attributes:
        num_workers: worker processes.
        batches_per_s: batches per second, without a training beside it.
        is_measured: whether it was measured, or follows from the parts.
    """

    num_workers: int
    batches_per_s: float
    is_measured: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderBench:
    """What a loader costs a training, by part, and what any loader could gain at most.

    Attributes:
        command: the command, or what names the source.
        is_source: whether a source was read, without a training.
        loader: the one that feeds the training; None where none was seen.
        others: further loaders of the script, which were not measured.
        bottleneck: `fetch`, `decode`, `transform`, `collate`, `copy` or `consumer`; None where that
            is not known. `consumer` where the whole interval of `bound` is below 1.05.
        bound: at most so many times as fast would a step be with any other loader: the step with
            the loader over the step with a kept batch.
        step_s: a step with the loader [s], the mean of the window.
        consumer_s: a step with a kept batch [s]: what is left if loading costs nothing.
        wait_s: of a step, waiting for its batch [s], the mean.
        wait_p99_s: the wait that one step in a hundred exceeds [s].
        first_batch_s: from the beginning of the first epoch to its first batch [s].
        samples_per_batch: samples of a batch that were read; None where they were not counted.
        cpu_per_sample_s: CPU time of the loader for a sample [s].
        parts: the parts of the way of a batch, in its order.
        transforms: the transforms, in the order in which they were found.
        sample: how long the parts of one sample of middle length took, outer parts first.
        is_whole_batch: whether `sample` is a batch, which the data set reads as a whole.
        workers_needed: so many workers keep up with the step; None where that is not known.
        cores_needed: cores that they keep busy; above `num_cores`, no number of workers suffices.
        num_cores: cores that the command may use.
        curve: batches per second by number of workers.
        num_kept: batches that were given in turn in place of the loader's.
        num_files: files that the batches came from, as far as they were seen.
        notes: machine words of what a reader must know about these numbers.
        missing: for fields without a value, the machine word of the reason.
        details: what belongs to a machine word of `missing`, such as an error's text.
    """

    command: tuple[str, ...]
    loader: BenchedLoader | None
    num_cores: int
    is_source: bool = False
    others: tuple[BenchedLoader, ...] = ()
    bottleneck: str | None = None
    bound: Interval | None = None
    step_s: Interval | None = None
    consumer_s: Interval | None = None
    wait_s: float | None = None
    wait_p99_s: float | None = None
    first_batch_s: float | None = None
    samples_per_batch: float | None = None
    cpu_per_sample_s: float | None = None
    parts: tuple[LoaderPart, ...] = ()
    transforms: tuple[TransformCost, ...] = ()
    sample: tuple[SampleSpan, ...] = ()
    is_whole_batch: bool = False
    workers_needed: int | None = None
    cores_needed: float | None = None
    curve: tuple[WorkersPoint, ...] = ()
    num_kept: int = 0
    num_files: int | None = None
    notes: tuple[str, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, str] = field(default_factory=dict)

    def part(self, name: str) -> LoaderPart | None:
        """Return a part by its name."""
        return next((part for part in self.parts if part.name == name), None)

    @property
    def loader_s(self) -> float | None:
        """What one process takes for a batch [s], with the bytes in the page cache."""
        times = [p.wall_s for p in self.parts if p.name in IN_LOADER and p.wall_s is not None]
        return sum(times) if times else None

    @property
    def loader_cpu_s(self) -> float | None:
        """CPU time of the loader for a batch [s]."""
        times = [p.cpu_s for p in self.parts if p.name in IN_LOADER and p.cpu_s is not None]
        return sum(times) if times else None
