"""Everything that is sampled from outside while the command runs: the machine and its devices.

In: the run folder and the command's first process. Out: lines in `host.jsonl`. Each sample says
when the next one is due; whoever waits for the command calls it then.
"""

from __future__ import annotations

import os
from pathlib import Path

from steptime.record.files import HOST
from steptime.watch.host.device_sampler import watch_devices
from steptime.watch.host.host_sampler import HostSampler, system_readers


class Outside:
    """Samples at once, and then each time `take` is called."""

    def __init__(self, run_folder: Path, *, root_pid: int) -> None:
        path = run_folder / HOST
        self._host = host = HostSampler(
            path,
            root_pid=root_pid,
            num_cores=os.cpu_count() or 1,
            readers=system_readers(run_folder, root_pid),
        )
        host.take()
        self._devices = watch_devices(path, job=lambda: host.job)

    @property
    def job(self) -> frozenset[int]:
        """The ids of the command's processes as they were last seen."""
        return self._host.job

    @property
    def num_failures(self) -> int:
        """The number of samples of the machine that failed."""
        return self._host.num_failures

    def take(self) -> float:
        """Sample once; return the time until the next sample [s]."""
        return self._host.take()

    def take_last(self) -> None:
        """Sample a last time, when the command has ended and was waited for."""
        if self._devices is not None:
            self._devices.stop()
        self._host.take_last()
