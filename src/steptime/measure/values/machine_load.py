"""The load of the machine while a run trained, as one value."""

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
