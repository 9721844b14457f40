"""The values of what kept the machine busy: all processes, this run, and the workers of loaders."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoad:
    """Load of the machine during the steps that count, in cores, as means over samples.

    Attributes:
        num_cores: cores of the machine.
        job_cores: cores that this command kept busy.
        others_cores: cores that other processes kept busy.
        num_samples: number of samples behind the means.
        swap_in_bytes_per_s: rate at which the whole machine read back from swap over the window
            [bytes/s].
        min_available_bytes: least memory that was available during the run [bytes].
        num_oom_kills: processes that the kernel killed in the run because memory ran out.
        quota_cores: cores that the control group of the command allows; null without a limit.
        delayed_fraction: part of the time for which a thread of the command wanted a core and got
            none, that of the most delayed one; null where the kernel does not count it.
        stopped_fraction: share of the quota's periods in which the kernel stopped the command
            because it had used its quota of cores up; null without a limit.
        throttled_fraction: share of the run's samples in which heat or the power supply held the
            clock of the command's device down, of the most throttled one; null without a device.
    """

    num_cores: int
    job_cores: float
    others_cores: float
    num_samples: int
    swap_in_bytes_per_s: float | None = None
    min_available_bytes: int | None = None
    num_oom_kills: int | None = None
    quota_cores: float | None = None
    delayed_fraction: float | None = None
    stopped_fraction: float | None = None
    throttled_fraction: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSummary:
    """What the DataLoader's worker processes reported, over all of them.

    Attributes:
        num_workers: worker processes that were seen.
        num_batches: batches that they made.
        fetch_s_per_batch: mean time in which a worker reads the samples of a batch [s].
        collate_s_per_batch: mean time in which a worker makes a batch of them [s].
        cpu_s_per_batch: mean CPU time of a worker per batch [s].
        copied_bytes: memory that all workers copied because they, or the training process, wrote to
            pages that they shared [bytes]; null where the system does not say.
        private_bytes: memory of all workers that is their own at the end [bytes].
        private_growth_bytes: how much of it came after their first batch was asked for [bytes].
        opens_images: whether Pillow opened an image in a worker.
        num_threads: threads of torch in each worker, the most of one; torch sets 1 itself.
        first_start_s: from the begin of the first epoch until the first worker was ready [s].
        first_fetch_s: time in which the first worker read and made its first batch [s].
    """

    num_workers: int
    num_batches: int
    fetch_s_per_batch: float
    collate_s_per_batch: float
    cpu_s_per_batch: float | None = None
    copied_bytes: int | None = None
    private_bytes: int | None = None
    private_growth_bytes: int | None = None
    opens_images: bool = False
    num_threads: int | None = None
    first_start_s: float | None = None
    first_fetch_s: float | None = None
