"""What `steptime data convert` answers with: the prediction before the work, and what was done."""

from __future__ import annotations

from dataclasses import dataclass

from steptime.core.interval import Interval

MIN_GAIN = 1.1
"""Below it a copy is not worth its disk: measured ratios that small are often no effect at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What a conversion would give, measured on a sample of the data before anything is written.

    Times are those of one process that reads shuffled batches and decodes their pictures: CPU time
    and waiting, without the time that other programs took from it.

    Attributes:
        source_format: what the data is, as a person knows it.
        target_format: what it would become: `prepared`.
        treatment: what would be done to pictures, in words; empty where bytes are kept.
        num_samples: of the source.
        num_sampled: how many of them were read, converted and read again.
        source_bytes: of the source; null where only reading everything would tell.
        target_bytes: of the target [bytes].
        source_s: to read one sample of the source [s].
        target_s: to read one sample of the target [s].
        gain: source_s / target_s.
        convert_s: how long the conversion takes, by the sample [s].
        disk_bytes_per_s: how fast the disk of the target reads; null where the sample was too
            small to tell.
        free_bytes: on the disk of the target.
        memory_bytes: that the page cache could hold the data in.
        is_disk_bound: the target does not fit into it, and its disk is slower than reading alone.
    """

    source_format: str
    target_format: str
    treatment: str
    num_samples: int
    num_sampled: int
    source_bytes: int | None
    target_bytes: Interval
    source_s: float
    target_s: float
    gain: Interval | None
    convert_s: float
    disk_bytes_per_s: float | None
    free_bytes: int
    memory_bytes: int
    is_disk_bound: bool

    @property
    def is_worth_it(self) -> bool:
        """Whether the gain is large enough."""
        return self.gain is None or self.gain.estimate >= MIN_GAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """What was written.

    Attributes:
        num_samples: that were written and read back.
        num_shards: they lie in.
        num_resumed: of these shards, those that an earlier, interrupted conversion had finished.
        num_bytes: of all samples as they are stored.
        wall_s: [s].
        cpu_s: of this process [s].
        was_checked: the checksum of each shard and of each sample, read back from the disk, is
            that of the source's samples.
    """

    num_samples: int
    num_shards: int
    num_resumed: int
    num_bytes: int
    wall_s: float
    cpu_s: float
    was_checked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionAnswer:
    """What `data convert` answers with.

    Attributes:
        source: the data, as it was named.
        target: the folder.
        prediction: before the work.
        conversion: what was done; null with `--dry-run`, or where it was not worth it.
    """

    source: str
    target: str
    prediction: Prediction
    conversion: Conversion | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionProgress:
    """How far a conversion is.

    Attributes:
        phase: `convert` or `check`.
        num_done: samples that were written (or checked).
        num_samples: of all.
        left_s: the time left by what was done so far; null at the start [s].
    """

    phase: str
    num_done: int
    num_samples: int
    left_s: float | None
