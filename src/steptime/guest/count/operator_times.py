"""Device time of single operators: an event before each one and another behind it.

In: what the operator probe puts on a device. Out: nanoseconds, added to the rows of a tally once
the last event has passed; nothing ever waits for the device. `timeline/device_clock.py` times the
phases of every update in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


class OperatorTimes:
    """Device time of single operators, by an event before and one behind each.

    The time between them is that of the operator's work where the device is behind the host; where
    it waits for the host, starting that work is in it. Nothing is waited for: the times are read
    once the last event has passed.

    Args:
        new_event: makes an event, as for `DeviceClock`.
        device_now: the index of the current device, on which the events are put.
        is_capturing: True while a CUDA graph is being captured.
    """

    def __init__(
        self,
        new_event: Callable[[], Any],
        device_now: Callable[[], int],
        is_capturing: Callable[[], bool] = lambda: False,
    ) -> None:
        self.new_event = new_event
        self.device_now = device_now
        self.is_capturing = is_capturing
        self.waiting: list[tuple[Any, Any, tuple[list[int], ...]]] = []
        self.is_whole = True

    def mark(self) -> Any:
        """An event on the current stream; None where there may be none."""
        if not self.is_whole:
            return None
        try:
            if not self.is_capturing():
                event = self.new_event()
                event.record()
                return event
        except Exception:  # in the middle of an operator of the user's: the training goes on
            pass
        self.is_whole = False
        return None

    def book(
        self, pair: tuple[Any, Any], tensors: Iterable[Any], rows: tuple[list[int], ...]
    ) -> None:
        """What is to be known of an operator that was put on the device.

        Args:
            pair: the marks before and behind it.
            tensors: what it read and wrote; where none is on a device there is nothing to time.
            rows: of a tally, which have a place for the time.
        """
        devices = {t.device.index for t in tensors if t.device.type == "cuda"}
        if not devices or not self.is_whole:
            return
        if devices == {self.device_now()}:
            self.waiting.append((*pair, rows))
        else:  # it ran on another stream than that of the marks
            self.is_whole = False

    def have_passed(self) -> bool:
        """Whether all that was timed is done on the device."""
        return not self.waiting or bool(self.waiting[-1][1].query())

    def read(self, place: int) -> bool:
        """Add the times [ns] to their rows; whether those of all operators are known."""
        if not self.waiting or not self.is_whole or not self.have_passed():
            return False
        for began, ended, rows in self.waiting:
            ns = int(began.elapsed_time(ended) * 1e6)
            for row in rows:
                row[place] += ns
        self.waiting = []
        return True


def operator_times(torch: Any) -> OperatorTimes | None:
    """Those of this process's device; None where it uses none."""
    cuda = torch.cuda
    if not cuda.is_initialized():
        return None
    return OperatorTimes(
        lambda: cuda.Event(enable_timing=True),
        cuda.current_device,
        cuda.is_current_stream_capturing,
    )
