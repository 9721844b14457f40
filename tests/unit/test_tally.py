"""What a tally makes of operators that ran on a device; on the CPU, with events made up."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from steptime.core.codec import from_json  # noqa: E402
from steptime.guest.count.counting_mode import make_mode  # noqa: E402
from steptime.guest.count.operators.operator_times import OperatorTimes  # noqa: E402
from steptime.guest.count.tally import Tally  # noqa: E402
from steptime.measure.values.model.work import Count  # noqa: E402
from unit.test_device import MS, Device  # noqa: E402

HERE = SimpleNamespace(device=SimpleNamespace(type="cuda", index=0))


class TimesOfHost(OperatorTimes):
    """Takes the CPU for a device whose every operator takes a millisecond."""

    def __init__(self) -> None:
        self.device = Device()
        super().__init__(self.device.new_event, lambda: 0)

    def mark(self) -> Any:
        event = super().mark()
        self.device.put_ms += 1
        return event

    def book(
        self, pair: tuple[Any, Any], tensors: Iterable[Any], rows: tuple[list[int], ...]
    ) -> None:
        assert list(tensors)
        super().book(pair, [HERE], rows)


def count(*, is_done: bool) -> tuple[Count, TimesOfHost]:
    times = TimesOfHost()
    tally = Tally(torch, times)
    weights = torch.randn(8, 4, requires_grad=True)
    with make_mode(torch, tally.add, lambda: 0, times=times):
        (torch.randn(3, 8) @ weights).relu().sum().backward()
    if is_done:
        times.device.finish()
    return from_json(Count, tally.table(is_executed=True)), times


def test_each_operator_has_its_time_on_the_device() -> None:
    found, times = count(is_done=True)
    of_class = {one.name: one for one in found.classes}

    assert of_class["matmul"].device_time_s == pytest.approx(of_class["matmul"].num * MS * 1e-9)
    of_groups = sum(one.device_time_s or 0.0 for one in found.groups)
    assert of_groups == pytest.approx(times.device.num_events / 2 * MS * 1e-9)
    assert not any(one.is_tiny for one in found.groups)


def test_views_are_no_work_for_a_device() -> None:
    found, times = count(is_done=True)

    assert times.device.num_events < 2 * sum(one.num for one in found.classes)


def test_what_the_device_is_not_done_with_is_not_known() -> None:
    found, _ = count(is_done=False)

    assert {one.device_time_s for one in found.classes} == {None}
    assert found.forward == 2 * 3 * 8 * 4


def test_operators_have_their_time_by_name_and_by_module() -> None:
    class Net(torch.nn.Sequential):
        pass

    net = Net(torch.nn.Linear(8, 4), torch.nn.Dropout(0.5))
    clock = iter(range(0, 10**9, 1000))
    tally = Tally(torch)
    tally.follow_modules()
    try:
        with make_mode(torch, tally.add, lambda: next(clock)):
            net(torch.randn(3, 8)).sum().backward()
    finally:
        tally.unfollow_modules()
    found = from_json(Count, tally.table(is_executed=True))
    by_name = {one.name: one for one in found.operators}

    drawn = by_name["aten.bernoulli_"]
    assert (drawn.num, drawn.module, drawn.module_kind) == (1, "Net.1", "Dropout")
    assert drawn.time_s == pytest.approx(1e-6)
    assert by_name["aten.mul"].num == 2  # in the forward and in the backward
    assert by_name["aten.mul"].module == "Net.1"
    kinds = {one.kind: one for one in found.module_times}
    assert {"Linear", "Dropout", ""} <= set(kinds)
    assert sum(one.num for one in found.module_times) == tally.num


def test_a_backward_whose_forward_ran_before_the_update_is_not_outside_of_modules() -> None:
    weights = torch.randn(8, 4, requires_grad=True)

    def outside(*, is_before: bool) -> tuple[int, int]:
        loss = (torch.randn(3, 8) @ weights).sum()
        tally = Tally(torch)
        if is_before:
            tally.first_node = torch.autograd._get_sequence_nr()
        with make_mode(torch, tally.add, lambda: 0):
            loss.backward()
        found = from_json(Count, tally.table(is_executed=True))
        return found.outside_flops, found.before_flops

    assert outside(is_before=False) == (2 * 3 * 8 * 4, 0)
    assert outside(is_before=True) == (0, 2 * 3 * 8 * 4)
