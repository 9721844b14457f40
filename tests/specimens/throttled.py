"""Healthy loop; half-way the device holds its clock down, and steps take about twice as long.

On a GPU the clock is locked low, which needs root, and let go at the end. With `--pretend FILE`,
on the CPU, a step gets twice the work and FILE is made, for a driver that is made up too.
"""

import argparse
import time
from pathlib import Path

import torch
from torch import nn

SECONDS = 12


class GpuClock:
    """The clock of the first GPU, locked low and let go."""

    def __init__(self):
        import pynvml

        self._nvml = pynvml
        pynvml.nvmlInit()
        self._handle = pynvml.nvmlDeviceGetHandleByIndex(0)

    def hold_down(self):
        highest = self._nvml.nvmlDeviceGetMaxClockInfo(self._handle, self._nvml.NVML_CLOCK_SM)
        self._nvml.nvmlDeviceSetGpuLockedClocks(self._handle, 0, highest // 3)

    def let_go(self):
        self._nvml.nvmlDeviceResetGpuLockedClocks(self._handle)


class PretendedClock:
    def __init__(self, file):
        self._file = file

    def hold_down(self):
        self._file.touch()

    def let_go(self):
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pretend", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    device, size = ("cuda", 4096) if args.pretend is None else ("cpu", 256)
    clock = GpuClock() if args.pretend is None else PretendedClock(args.pretend)
    model = nn.Sequential(nn.Linear(size, 1024), nn.ReLU(), nn.Linear(1024, size)).to(device)
    criterion = nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(512, size, device=device), torch.randn(512, size, device=device)
    num_steps, at = 0, 0
    began = time.time()
    try:
        while time.time() < began + SECONDS:
            if not at and time.time() > began + SECONDS / 2:
                clock.hold_down()
                at = num_steps
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            if args.pretend is not None and at:
                loss = loss + criterion(model(x), y)
            loss.backward()
            loss.item()
            optimizer.step()
            num_steps += 1
    finally:
        clock.let_go()
    print(f"steps {num_steps} changed {at}")


if __name__ == "__main__":
    main()
