"""Device time of single operators: an event before each one and another behind it.

In: what the operator probe puts on a device. Out: nanoseconds, added to the rows of a tally once
the last event has passed; nothing ever waits for the device. `timeline/device_clock.py` times the
phases of every update in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...timeline.interrupts import let_through


class OperatorTimes:
    """Device time of single operators, from one event before and one behind each.

    Where the device lags behind the host, the time between the two is that of the operator's work;
    where the device waits for the host, it includes the start of that work. Nothing is waited for:
    the times are read once the last event has passed.

    Args:
        new_event: makes an event, as for `DeviceClock`.
        device_now: the index of the current device, on which the events are recorded.
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
        """Return an event on the current stream; None where none may be recorded."""
        if not self.is_whole:
            return None
        try:
            if not self.is_capturing():
                event = self.new_event()
                event.record()
                return event
        except BaseException as error:  # inside an operator of the user's
            let_through(error)
        self.is_whole = False
        return None

    def book(
        self, pair: tuple[Any, Any], tensors: Iterable[Any], rows: tuple[list[int], ...]
    ) -> None:
        """Keep what is needed to time an operator that was queued on the device.

        Args:
            pair: the marks before and behind it.
            tensors: what it read and wrote; without one on a device there is nothing to time.
            rows: rows of a tally, which have a place for the time.
        """
        devices = {t.device.index for t in tensors if t.device.type == "cuda"}
        if not devices or not self.is_whole:
            return
        if devices == {self.device_now()}:
            self.waiting.append((*pair, rows))
        else:  # it ran on another device than the marks
            self.is_whole = False

    def have_passed(self) -> bool:
        """Return whether the device has finished everything that was timed."""
        return not self.waiting or bool(self.waiting[-1][1].query())

    def read(self, place: int) -> bool:
        """Add the times [ns] to their rows; return whether those of all operators are known."""
        if not self.waiting or not self.is_whole or not self.have_passed():
            return False
        for began, ended, rows in self.waiting:
            ns = int(began.elapsed_time(ended) * 1e6)
            for row in rows:
                row[place] += ns
        self.waiting = []
        return True


def operator_times(torch: Any) -> OperatorTimes | None:
    """Return a timer for this process's device; None where it uses none."""
    cuda = torch.cuda
    if not cuda.is_initialized():
        return None
    return OperatorTimes(
        lambda: cuda.Event(enable_timing=True),
        cuda.current_device,
        cuda.is_current_stream_capturing,
    )
