"""What the kernel does for a step, where each stretch holds an evaluation or a checkpoint."""

from __future__ import annotations

import pytest

from steptime.measure.fold.seen_lines import MemorySample
from steptime.tune.trials.facts.kernel_use import KernelUse, kernel_use

ENDS_S = [float(number) for number in range(10)]


def sample(t_s: float, faults: int | None, system_s: float | None = 0.0) -> MemorySample:
    stime_ns = None if system_s is None else round(system_s * 1e9)
    return MemorySample(t=round(t_s * 1e9), bucket=0, minflt=faults, stime_ns=stime_ns)


def test_growth_is_divided_by_the_updates_that_count() -> None:
    samples = [sample(0.5, 1000), sample(3.5, 5000, 1.0), sample(7.5, 7000, 1.4)]

    use = kernel_use(samples, ENDS_S, first=3)

    assert use == KernelUse(minor_faults=500.0, system_s=pytest.approx(0.1))


def test_where_the_window_has_too_few_samples_those_before_it_count() -> None:
    samples = [sample(0.5, 1000), sample(8.5, 1800)]

    use = kernel_use(samples, ENDS_S, first=5)

    assert use is not None
    assert use.minor_faults == 100.0


@pytest.mark.parametrize("samples", [[], [sample(4.5, 7)], [sample(4.2, 7), sample(4.6, 900)]])
def test_of_one_update_or_none_nothing_is_said(samples: list[MemorySample]) -> None:
    assert kernel_use(samples, ENDS_S, first=1) is None


def test_a_counter_that_is_not_there_is_not_zero() -> None:
    samples = [sample(1.5, None, None), sample(7.5, None, None)]

    assert kernel_use(samples, ENDS_S, first=1) == KernelUse(minor_faults=None, system_s=None)
