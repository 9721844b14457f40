"""What operators take for themselves on the CPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from steptime.guest.count.counting_mode import make_mode  # noqa: E402
from steptime.guest.memory.storages import Storages  # noqa: E402
from steptime.guest.memory.workspaces import MIN_BYTES, Workspaces  # noqa: E402


def run(workspaces, func, *args):
    is_watched = workspaces.begin(func, args)
    result = func(*args)
    if is_watched:
        workspaces.end()
    return is_watched, result


def test_results_are_no_workspace() -> None:
    workspaces = Workspaces(torch)
    is_watched, _ = run(workspaces, torch.ops.aten.add.Tensor, torch.ones(5000), torch.ones(5000))

    assert is_watched
    assert workspaces.taken == 0


def test_a_recurrent_layer_takes_memory_for_itself() -> None:
    workspaces = Workspaces(torch)
    layer, x = torch.nn.LSTM(64, 64), torch.randn(16, 8, 64)
    storages = Storages(torch, "cpu")
    storages.workspaces = workspaces
    add = lambda func, args, kwargs, result, ns: storages.add(func, args, kwargs, result)  # noqa: E731
    storages.open("forward")
    with make_mode(torch, add, lambda: 0, workspaces=workspaces):
        out = layer(x)[0].sum()
    storages.open("backward")
    with make_mode(torch, add, lambda: 0, workspaces=workspaces):
        out.backward()

    assert sum(storages.extras.values()) > 0


def test_small_operators_are_not_watched() -> None:
    workspaces = Workspaces(torch)

    assert not workspaces.begin(torch.ops.aten.neg.default, (torch.ones(MIN_BYTES // 4 - 1),))
    workspaces.expect(100 * MIN_BYTES * 1000)
    assert not workspaces.begin(torch.ops.aten.neg.default, (torch.ones(MIN_BYTES),))


@pytest.mark.parametrize("name", ["resize_", "set_"])
def test_what_may_free_an_older_storage_is_not_watched(name: str) -> None:
    func = getattr(torch.ops.aten, name).default

    assert not Workspaces(torch).begin(func, (torch.ones(MIN_BYTES),))


def test_operators_of_others_are_not_watched() -> None:
    assert not Workspaces(torch).begin("mine.own.default", (torch.ones(MIN_BYTES),))


def test_another_release_of_torch_leaves_them_unseen() -> None:
    workspaces = Workspaces(SimpleNamespace(_C=SimpleNamespace()))

    assert not workspaces.begin(torch.ops.aten.neg.default, (torch.ones(MIN_BYTES),))


def test_an_operator_that_raises_leaves_nothing_open_and_prints_nothing(capfd) -> None:
    workspaces = Workspaces(torch)
    a, b = torch.ones(64, 64), torch.ones(63, 64)
    with (
        pytest.raises(RuntimeError),
        make_mode(torch, lambda *_: None, lambda: 0, workspaces=workspaces),
    ):
        a @ b
    run(workspaces, torch.ops.aten.add.Tensor, torch.ones(5000), torch.ones(5000))
    old = torch.ones(10_000)
    del old  # allocated and freed outside: nobody listens

    assert not torch._C._autograd._profiler_enabled()
    assert capfd.readouterr() == ("", "")
