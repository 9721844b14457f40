"""Waiting for a quiet machine."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from steptime.tune.trials.quiet_watch import Load, QuietWatch, Waited


class Machine:
    """Others take so many cores while each half second is slept; then none."""

    def __init__(self, others: Sequence[float]) -> None:
        self._others = list(others)
        self._load = Load(at_s=0.0, busy_s=0.0, own_s=0.0)

    def read(self) -> Load:
        return self._load

    def sleep(self, duration_s: float) -> None:
        others = self._others.pop(0) if self._others else 0.0
        self._load = Load(
            at_s=self._load.at_s + duration_s,
            busy_s=self._load.busy_s + (others + 0.01) * duration_s,
            own_s=self._load.own_s + 0.01 * duration_s,
        )


def wait(others: Sequence[float], *, budget_s: float = 600.0, times: int = 1) -> list[Waited]:
    machine = Machine(others)
    told: list[Waited] = []
    watch = QuietWatch(budget_s, told.append, read=machine.read, sleep=machine.sleep)
    found = [watch.wait() for _ in range(times)]
    assert told == found
    return found


def test_a_quiet_machine_is_looked_at_once() -> None:
    (waited,) = wait([0.0])

    assert waited == Waited(is_quiet=True, others_cores=0.0, waited_s=0.5)


def test_a_neighbor_is_waited_out() -> None:
    (waited,) = wait([1.0, 1.0, 1.0])

    assert waited.is_quiet
    assert waited.waited_s == 2.0


def test_a_neighbor_that_stays_is_not_waited_for_for_ever() -> None:
    (waited,) = wait([1.0] * 1000)

    assert not waited.is_quiet
    assert waited.waited_s == 10.0
    assert waited.others_cores == pytest.approx(1.0)


def test_all_waits_together_take_a_tenth_of_the_budget() -> None:
    found = wait([1.0] * 10_000, times=20)

    assert sum(waited.waited_s for waited in found) < 60.0 + 20 * 0.5 + 0.5
