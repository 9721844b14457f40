"""What the graph of a loss says about shapes and targets, and where it says nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from steptime.guest.sense.loss_graph import NEVER, LossGraph
from steptime.guest.sites.file_owners import FileOwners
from steptime.guest.sites.frames import Frames

torch = pytest.importorskip("torch")
functional = torch.nn.functional


def graph() -> LossGraph:
    return LossGraph(torch, Frames(FileOwners(torch)))


def ask(found: LossGraph, loss: Any, num_updates: int) -> None:
    """Let it take a loss as the watch does where one is due."""
    found.plan(num_updates)
    found.see((loss,))


def seen(loss: Any) -> LossGraph:
    found = graph()
    ask(found, loss, 0)
    return found


def column(num: int = 8) -> Any:
    return torch.nn.Linear(3, 1)(torch.randn(num, 3))


COMPARED: list[Callable[[Any, Any], Any]] = [
    functional.mse_loss,
    functional.l1_loss,
    functional.smooth_l1_loss,
    functional.huber_loss,
    lambda a, b: ((a - b) ** 2).sum() / 8,
    lambda a, b: 2 * (b - a).abs().mean() + a.sum(),
]


@pytest.mark.parametrize("compare", COMPARED)
def test_a_column_and_a_row_of_targets_are_a_loss_of_two_shapes(
    compare: Callable[[Any, Any], Any],
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = seen(compare(column(), torch.randn(8))).broadcast

    assert found is not None
    assert (found["prediction"], found["result"]) == ([8, 1], [8, 8])
    assert found["target"] in ([8], None)
    assert found["place"]["file"] == __file__


@pytest.mark.parametrize("compare", COMPARED)
def test_equal_shapes_and_one_target_for_all_are_none(compare: Callable[[Any, Any], Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for target in (torch.randn(8, 1), torch.randn(1), torch.randn(1, 1)):
            assert seen(compare(column(), target)).broadcast is None


def test_an_axis_that_the_script_inserts_is_meant() -> None:
    scores = column().squeeze(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert seen(functional.mse_loss(scores[:, None], torch.randn(8))).broadcast is None
        assert seen((scores.unsqueeze(1) - torch.randn(8)).pow(2).mean()).broadcast is None


def labels(*, rows_without: int) -> Any:
    found = torch.full((4, 6), -100)
    found[rows_without:, 3:] = 1
    return found


def loss_of_tokens(target: Any, **options: Any) -> Any:
    logits = torch.nn.Linear(3, 5)(torch.randn(4, 6, 3))
    return functional.cross_entropy(logits.view(-1, 5), target.view(-1), **options)


@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1}, {"reduction": "sum"}])
def test_targets_are_counted_by_rows(options: dict[str, Any]) -> None:
    found = seen(loss_of_tokens(labels(rows_without=3), **options) / 4).targets

    counted = {"targets": 24, "useful": 3, "rows": 4, "rows_without": 3}
    assert found == {**counted, "num_updates": 1, "ignored": -100}


def test_targets_of_two_axes_are_rows() -> None:
    logits = torch.nn.Linear(3, 5)(torch.randn(4, 6, 3)).transpose(1, 2)
    found = seen(functional.cross_entropy(logits, labels(rows_without=2))).targets

    assert found is not None
    assert (found["rows"], found["rows_without"], found["useful"]) == (4, 2, 6)


def test_single_labels_have_no_rows() -> None:
    logits = torch.nn.Linear(3, 5)(torch.randn(8, 3))
    found = seen(functional.cross_entropy(logits, torch.full((8,), 2))).targets

    assert found is not None
    assert (found["rows"], found["useful"]) == (0, 8)


def test_what_a_hook_has_packed_stays_packed() -> None:
    unpacked: list[Any] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: unpacked.append(x) or x):
        loss = loss_of_tokens(labels(rows_without=3))

    assert seen(loss).targets is None
    assert unpacked == []


def test_a_training_without_ignored_targets_is_asked_less_and_less() -> None:
    found, when = graph(), list[int]()
    for number in range(300):
        if number >= found.due:
            when.append(number)
            ask(found, loss_of_tokens(torch.ones(4, 6, dtype=torch.long)), number)

    assert when == [0, 1, 2, 3, 12, 48, 192]


def test_a_loss_without_anything_of_interest_is_never_asked_again() -> None:
    found = graph()
    for number in range(4):
        ask(found, column().sum(), number)

    assert found.due == NEVER


def part_of(loss: Any) -> tuple[int, float, int] | None:
    return graph().see_part((loss,))


def test_a_part_has_its_targets_its_factor_and_its_classes() -> None:
    target = torch.zeros(4, 6, dtype=torch.long)
    target[:, 2:] = -100

    assert part_of(loss_of_tokens(target)) == (8, 1.0, 5)
    assert part_of(loss_of_tokens(target) / 4) == (8, 0.25, 5)
    assert part_of(torch.tensor(0.5) * loss_of_tokens(target) * 3) == (8, 1.5, 5)
    assert part_of(loss_of_tokens(target, reduction="sum")) is None
    assert part_of(loss_of_tokens(target) + column().sum()) is None
    assert part_of(2 / loss_of_tokens(target)) is None


def test_numbers_of_a_device_are_taken_once_they_have_arrived() -> None:
    class Slot:
        def __init__(self, value: float) -> None:
            self.value, self.event = value, self

        def query(self) -> bool:
            return arrived

    class Looks:
        def begin(self, tensor: Any) -> Slot:
            return Slot(float(tensor))

        def take(self, slot: Slot) -> float:
            return slot.value

    arrived = False
    found = graph()
    found.looks, found.are_here = Looks(), lambda _: False  # type: ignore[assignment,method-assign]
    loss = loss_of_tokens(labels(rows_without=3))
    ask(found, loss, 0)
    ask(found, loss, 1)
    assert found.targets is not None
    assert found.targets["num_updates"] == 0
    arrived = True
    ask(found, loss, 2)

    assert (found.targets["num_updates"], found.targets["rows_without"]) == (1, 3)
    assert (found.targets["targets"], found.targets["useful"]) == (24, 3)
