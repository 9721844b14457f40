"""`steptime` with a made-up NVIDIA driver: one device, whose clock falls when a file is there.

python made_up_driver.py FILE WORDS...
"""

# ruff: noqa: N802 - the names are those of NVML
from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

from steptime.cli.main import main
from steptime.watch.host import device_sampler


class NVMLError(Exception):
    value = 3


class Nvml:
    """One device of one process after the other: it is always the command's."""

    NVMLError = NVMLError

    def __init__(self, throttle: Path) -> None:
        self._throttle = throttle

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(gpu=90, memory=40)

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:
        return 900 if self._throttle.exists() else 1980

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: int) -> int:
        return 0x20 if self._throttle.exists() else 0


if __name__ == "__main__":
    nvml = Nvml(Path(sys.argv[1]))
    device_sampler._DRIVERS = ("/",)
    device_sampler.load_nvml = lambda: nvml
    sys.exit(main(sys.argv[2:]))
