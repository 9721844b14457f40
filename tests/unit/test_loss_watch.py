"""What the guest notes of losses and gradient norms, on the CPU and on a made-up device."""

from __future__ import annotations

import gc
import json
import math
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from steptime.guest.health.device_looks import MAX_SLOTS, DeviceLooks
from steptime.guest.health.loss_lines import ALL_UPDATES, BLOCK, LossLines
from steptime.guest.health.loss_watch import LOOK_EVERY, LossWatch
from steptime.guest.health.weights import look_at_weights, name_bad_weights
from steptime.guest.sites.file_owners import USERS
from steptime.guest.sites.frames import Frames
from steptime.guest.timeline.recorder import Recorder

torch = pytest.importorskip("torch")


class Owners:
    """This file is the user's."""

    @staticmethod
    def owner(file: str) -> int | None:
        return USERS if file == __file__ else None


@pytest.fixture
def watch(tmp_path: Path) -> LossWatch:
    recorder = Recorder(str(tmp_path), lambda: {"rank": 0})
    frames = Frames(Owners())  # type: ignore[arg-type]
    return LossWatch(torch, recorder, frames)


def update(watch: LossWatch, *losses: Any, optimizer: int = 0, skipped: int | None = 0) -> None:
    for loss in losses:
        watch.see_loss((loss,))
    watch.end_update(optimizer, skipped)


def written(watch: LossWatch) -> tuple[list[list[Any]], list[dict[str, Any]]]:
    """Rows, and places of bad numbers."""
    lines = [json.loads(line) for line in watch.pop_lines(is_last=True).splitlines()]
    rows = [row for line in lines if line["k"] == "v" for row in line["rows"]]
    assert watch.recorder.failures == {}
    return rows, [line for line in lines if line["k"] == "nf"]


def value(number: float, dtype: Any = torch.float32, shape: tuple[int, ...] = ()) -> Any:
    return torch.full(shape, number, dtype=dtype, requires_grad=True)


# -- on the CPU


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str
)
@pytest.mark.parametrize("number", [0.15625, -2.5, math.inf, math.nan])
def test_a_number_of_each_type_is_read_as_it_is(
    watch: LossWatch, dtype: Any, number: float
) -> None:
    update(watch, value(number, dtype))

    ((_, _, _, loss, norm),), _ = written(watch)
    assert norm is None
    assert str(float(loss)) == str(number)


def test_a_view_is_read_at_its_own_place(watch: LossWatch) -> None:
    update(watch, torch.arange(4.0)[2], torch.arange(4.0)[1:2])

    rows, _ = written(watch)
    assert rows == [[1, 0, 0, 1.5, None]]


def test_several_backward_calls_give_their_mean_and_the_norm_stands_beside(
    watch: LossWatch,
) -> None:
    watch.see_norm(torch.tensor(3.0))
    update(watch, value(1.0), value(2.0), optimizer=1)
    update(watch, value(4.0))

    assert written(watch)[0] == [[1, 1, 0, 1.5, 3], [2, 0, 0, 4, None]]


def test_a_closures_last_loss_counts(watch: LossWatch) -> None:
    for number in (math.inf, 8.0, 5.0):
        watch.see_other_loss((value(number),), inside_step=True)
    watch.end_update(0, 0)

    assert written(watch) == ([[1, 0, 0, 5, None]], [])


def test_what_is_no_loss_is_passed_over(watch: LossWatch) -> None:
    three = value(1.0, shape=(3,))
    watch.see_loss((three, torch.ones(3)))
    watch.see_loss(([value(1.0), value(2.0)],))
    watch.see_loss((None,))
    for args in ((), (three,)):
        watch.see_other_loss(args, inside_step=False)
    watch.end_update(0, 0)

    assert written(watch) == ([], [])


def test_a_list_of_one_tensor_is_a_loss(watch: LossWatch) -> None:
    update(watch, [value(7.0)])

    assert written(watch)[0] == [[1, 0, 0, 7, None]]


def test_a_mode_of_the_users_sees_nothing(watch: LossWatch) -> None:
    from torch.overrides import TorchFunctionMode

    seen: list[str] = []

    class Counting(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    loss, norm = value(1.0), torch.tensor(2.0)
    with Counting():
        watch.see_norm(norm)
        update(watch, loss)

    assert seen == []
    assert written(watch)[0] == [[1, 0, 0, 1, 2]]


def test_no_operator_is_called_to_read(watch: LossWatch) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    loss = value(1.0)
    with Counting():
        update(watch, loss)
        update(watch, value(math.nan))

    assert [name for name in seen if "full" not in name] == []
    assert len(written(watch)[0]) == 2


def test_a_loss_is_taken_before_it_is_scaled(watch: LossWatch) -> None:
    loss = value(2.0)
    scaled = loss * 1024
    watch.see_scaled(loss, scaled)
    update(watch, scaled)
    watch.see_scaled(loss, loss)  # a scaler that is not enabled
    update(watch, loss)

    assert written(watch)[0] == [[1, 0, 0, 2, None], [2, 0, 0, 2, None]]


def test_nothing_of_the_graph_is_kept(watch: LossWatch) -> None:
    loss = value(2.0) * 1
    scaled = loss * 4
    gone = [weakref.ref(loss), weakref.ref(scaled)]
    watch.see_scaled(loss, scaled)
    update(watch, scaled)
    del loss, scaled
    gc.collect()

    assert [one() for one in gone] == [None, None]


# -- bad numbers


def test_a_bad_number_is_noted_with_its_line_once_until_it_is_over(watch: LossWatch) -> None:
    for number in (1.0, math.nan, math.nan, 1.0, -math.inf):
        update(watch, value(number))

    rows, places = written(watch)
    assert [row[3] for row in rows] == [1, "nan", "nan", 1, "-inf"]
    assert [(place["n"], place["is_nan"]) for place in places] == [(2, True), (5, False)]
    assert {place["file"] for place in places} == {__file__}
    assert {place["value"] for place in places} == {"loss"}


def test_a_bad_norm_is_noted_too(watch: LossWatch) -> None:
    watch.see_norm(torch.tensor(math.inf))
    update(watch, value(1.0), skipped=1)

    rows, (place,) = written(watch)
    assert rows == [[1, 0, 1, 1, "inf"]]
    assert (place["value"], place["skipped"]) == ("gradient_norm", 1)


def test_a_script_that_stops_at_a_bad_loss_leaves_it(watch: LossWatch) -> None:
    update(watch, value(1.0))
    loss = value(math.nan)
    watch.see_bad_read(loss, math.nan)

    rows, (place,) = written(watch)
    assert len(rows) == 1
    assert (place["n"], place["is_open"]) == (2, True)


def test_a_bad_metric_is_no_loss(watch: LossWatch) -> None:
    watch.see_bad_read(torch.tensor(math.nan), math.nan)

    assert written(watch) == ([], [])


def test_a_bad_loss_that_the_script_passes_over_is_forgotten(watch: LossWatch) -> None:
    watch.see_bad_read(value(math.nan), math.nan)
    update(watch, value(1.0))

    assert written(watch)[1] == []


def test_autograd_grad_counts_where_nothing_goes_backward(watch: LossWatch) -> None:
    watch.see_grad((value(3.0),))
    watch.end_update(-1, 0)
    update(watch, value(2.0))
    watch.see_grad((value(9.0),))
    watch.end_update(0, 0)

    assert written(watch)[0] == [[1, -1, 0, 3, None], [1, 0, 0, 2, None]]


# -- the weights


def trained(optimizer_class: Any = torch.optim.AdamW) -> tuple[Any, Any]:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    optimizer = optimizer_class(model.parameters(), lr=0.1)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_sound_weights_are_counted() -> None:
    _, optimizer = trained()

    assert look_at_weights(torch, [optimizer]) == {
        "num": 4,
        "num_bad": 0,
        "num_broken": 0,
        "num_states": 8,
        "num_bad_states": 0,
    }


def test_bad_weights_and_states_are_counted() -> None:
    model, optimizer = trained()
    with torch.no_grad():
        model[0].weight[1, 1] = math.inf
        model[1].weight.fill_(math.nan)
        optimizer.state[model[0].bias]["exp_avg"][0] = math.nan
        optimizer.state[model[1].bias]["exp_avg_sq"].fill_(-1.0)

    found = look_at_weights(torch, [optimizer])

    assert found is not None
    assert (found["num_bad"], found["num_broken"], found["num_bad_states"]) == (2, 1, 2)


def test_bad_weights_have_names_where_others_are_sound() -> None:
    model, optimizer = trained()
    names = {id(weight): name for name, weight in model.named_parameters()}
    with torch.no_grad():
        model[1].weight.fill_(math.nan)

    assert name_bad_weights(torch, [optimizer], names) == ["1.weight"]
    assert name_bad_weights(torch, [optimizer], {}) == []
    with torch.no_grad():
        for weight in model.parameters():
            weight.fill_(math.nan)
    assert name_bad_weights(torch, [optimizer], names) == []


def test_weights_are_left_alone_under_a_mode() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    _, optimizer = trained()
    with TorchDispatchMode():
        assert look_at_weights(torch, [optimizer]) is None
    assert look_at_weights(torch, []) is None


# -- what is written


def test_of_late_blocks_two_rows_are_written_and_bad_ones_always() -> None:
    lines = LossLines()
    first = ALL_UPDATES + 1
    for number in range(first, first + 2 * BLOCK):
        loss = 9.0 if number == first + 5 else math.nan if number == first + BLOCK + 3 else 1.0
        lines.add_late(number, 0, loss, is_loss=True)

    rows = json.loads(lines.pop().splitlines()[0])["rows"]
    assert [row[0] - first for row in rows] == [0, 5, BLOCK, BLOCK + 3, BLOCK + 4]


def test_losses_that_no_reader_takes_are_infinite() -> None:
    lines = LossLines()
    lines.ended.append((0, 0, 1e200, 1, -1e200))

    assert json.loads(lines.pop())["rows"] == [[1, 0, 0, "inf", "-inf"]]


# -- on a device


class Event:
    def __init__(self, device: Device) -> None:
        self.device = device

    def record(self) -> None:
        self.device.num_recorded += 1

    def query(self) -> bool:
        return self.device.has_arrived


class Memory:
    """Pinned memory; its address is its place in the list of the device."""

    dtype = torch.float32

    def __init__(self, device: Device) -> None:
        self.device, self.number = device, 0.0

    def copy_(self, source: Any, *, non_blocking: bool) -> None:
        assert non_blocking
        self.number = source.number

    def data_ptr(self) -> Any:
        return self


class OnDevice:
    """A tensor of one number on a device."""

    dtype, is_cpu = torch.float32, False
    device = SimpleNamespace(type="cuda", index=0)

    def __init__(self, number: float, address: int = 64) -> None:
        self.number, self.address = number, address

    def numel(self) -> int:
        return 1

    def data_ptr(self) -> int:
        return self.address

    def detach(self) -> OnDevice:
        return self

    def view(self, _: int) -> OnDevice:
        return self


class Device:
    """As much of torch as a look needs; what was begun arrives when `has_arrived`."""

    def __init__(self) -> None:
        self.has_arrived = False
        self.num_recorded = 0
        self.num_modes = 0
        self.is_capturing = False
        self.cuda = SimpleNamespace(
            current_device=lambda: 0,
            is_current_stream_capturing=lambda: self.is_capturing,
            Event=lambda: Event(self),
        )
        self._C = SimpleNamespace(
            _len_torch_dispatch_stack=lambda: self.num_modes,
            _len_torch_function_stack=lambda: 0,
        )
        self.no_grad = torch.no_grad

    def empty(self, size: int, *, dtype: Any, pin_memory: bool) -> Memory:
        assert (size, pin_memory) == (1, True)
        return Memory(self)


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.fixture
def far(watch: LossWatch, device: Device, monkeypatch: pytest.MonkeyPatch) -> LossWatch:
    """A watch whose losses are on a device."""
    watch.plain = (OnDevice,)  # type: ignore[assignment]
    watch.looks = DeviceLooks(device, {torch.float32: lambda memory: memory.number})
    return watch


def test_one_loss_in_sixteen_is_copied_and_read_when_it_is_there(
    far: LossWatch, device: Device
) -> None:
    for number in range(2 * LOOK_EVERY):
        device.has_arrived = number % LOOK_EVERY == 3
        update(far, OnDevice(float(number)))

    assert device.num_recorded == 2
    assert written(far)[0] == [[1, 0, 0, 0, None], [1 + LOOK_EVERY, 0, 0, LOOK_EVERY, None]]


def test_a_loss_that_the_script_reads_is_taken_as_it_passes(far: LossWatch, device: Device) -> None:
    before = OnDevice(0.0, address=1)
    far.see_read(before, 5.0)
    update(far, before)
    after = OnDevice(0.0, address=2)
    update(far, after)
    far.see_read(after, 6.0)
    between = OnDevice(0.0, address=3)
    far.see_loss((between,))
    far.see_read(between, 7.0)
    far.end_update(0, 0)

    assert written(far)[0] == [[1, 0, 0, 5, None], [2, 0, 0, 6, None], [3, 0, 0, 7, None]]
    assert device.num_recorded == 0


def test_a_bad_loss_of_a_device_is_told_once_without_a_line(far: LossWatch) -> None:
    for number in (1.0, math.nan, math.nan):
        loss = OnDevice(number)
        update(far, loss)
        far.see_read(loss, number)

    rows, places = written(far)
    assert [row[3] for row in rows] == [1, "nan", "nan"]
    assert places == [{"k": "nf", "n": 2, "value": "loss", "is_nan": True}]


def test_another_tensor_at_the_place_of_a_loss_that_is_gone_is_not_it(far: LossWatch) -> None:
    loss = OnDevice(0.0, address=2)
    update(far, loss)
    del loss
    far.see_read(OnDevice(0.0, address=2), 9.0)

    assert written(far)[0] == []


def test_nothing_is_copied_where_it_would_be_seen_or_captured(device: Device) -> None:
    looks = DeviceLooks(device, {torch.float32: lambda memory: memory.number})
    device.num_modes = 1
    assert looks.begin(OnDevice(1.0)) is None
    device.num_modes, device.is_capturing = 0, True
    assert looks.begin(OnDevice(1.0)) is None
    device.is_capturing = False
    assert looks.begin(OnDevice(1.0)) is not None


def test_a_device_that_is_far_behind_is_not_asked_again(device: Device) -> None:
    looks = DeviceLooks(device, {torch.float32: lambda memory: memory.number})
    slots = [looks.begin(OnDevice(1.0)) for _ in range(MAX_SLOTS + 1)]

    assert slots[-1] is None
    assert slots[0] is not None
    assert looks.take(slots[0]) is None
    device.has_arrived = True
    assert looks.take(slots[0]) == 1.0
    assert looks.begin(OnDevice(2.0)) is slots[0]
