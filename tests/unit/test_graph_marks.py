"""Whether the graphs of early updates are alive, by marks on their nodes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from steptime.guest.health.graph_marks import (
    MARK_EVERY,
    MAX_NODES,
    MAX_TRIES,
    NEVER,
    NUM_MARKED,
    GraphMarks,
    nodes_of,
)
from steptime.guest.timeline.recorder import Recorder

torch = pytest.importorskip("torch")

ENOUGH = 60


class Training:
    def __init__(self, folder: Path) -> None:
        self.recorder = Recorder(str(folder), lambda: {"rank": 0})
        self.journal = SimpleNamespace(num_updates=0)
        self.recorder.journals.append(self.journal)
        self.marks = GraphMarks(torch, self.recorder)
        self.weight = torch.ones(3, requires_grad=True)

    def loss(self, state: Any = 0.0) -> Any:
        return ((self.weight * 2).tanh() + state).sum()

    def backward(self, loss: Any, **options: Any) -> None:
        if self.journal.num_updates >= self.marks.due:
            self.marks.see((loss,), self.journal.num_updates)
        loss.backward(**options)
        self.journal.num_updates += 1

    def told(self) -> dict[str, Any] | None:
        text = self.marks.poll(0, is_last=True)
        return json.loads(text) if text else None


@pytest.fixture
def train(tmp_path: Path) -> Training:
    return Training(tmp_path)


def test_graphs_that_are_let_go(train: Training) -> None:
    for _ in range(ENOUGH):
        train.backward(train.loss())
    told = train.told()
    assert told is not None
    assert (told["is_kept"], told["n"]) == (False, ENOUGH)
    assert told["marked"] == [MARK_EVERY * (i + 1) for i in range(NUM_MARKED)]


def test_a_sum_of_losses_keeps_them(train: Training) -> None:
    total: Any = 0.0
    for _ in range(ENOUGH):
        loss = train.loss()
        train.backward(loss)
        total = total + loss
    told = train.told()
    assert told is not None
    assert told["is_kept"]


def test_a_state_that_is_carried_keeps_them(train: Training) -> None:
    state: Any = torch.zeros(3)
    for _ in range(ENOUGH):
        state = (train.weight * 2).tanh() + 0.5 * state
        train.backward(state.sum(), retain_graph=True)
    told = train.told()
    assert told is not None
    assert told["is_kept"]


def test_one_graph_may_be_kept(train: Training) -> None:
    best: Any = None
    for number in range(ENOUGH):
        loss = train.loss()
        train.backward(loss)
        best = loss if number == MARK_EVERY else best
    told = train.told()
    assert told is not None
    assert not told["is_kept"]


def test_what_is_made_once_from_an_input_is_no_graph_of_each_update(train: Training) -> None:
    points = torch.ones(3, requires_grad=True).double()
    for _ in range(ENOUGH):
        train.backward((train.loss() + points.sin().sum()), retain_graph=True)
    told = train.told()
    assert told is not None
    assert not told["is_kept"]


def test_gradients_stay_as_they_are(train: Training) -> None:
    train.journal.num_updates = MARK_EVERY
    train.backward(train.loss())
    marked = train.weight.grad.clone()
    train.weight.grad = None
    train.loss().backward()
    assert torch.equal(marked, train.weight.grad)


def test_a_short_training_says_nothing(train: Training) -> None:
    for _ in range(30):
        train.backward(train.loss())
    assert train.told() is None


def test_what_has_no_graph_is_tried_again_but_not_for_ever(train: Training) -> None:
    for number in range(200):
        if number >= train.marks.due:
            train.marks.see((torch.ones(()),), number)
    assert (train.marks.marks, train.marks.due) == ({}, NEVER)
    assert train.marks.num_tries == MAX_TRIES


def test_a_large_graph_is_walked_in_part() -> None:
    x = torch.ones((), requires_grad=True)
    for _ in range(MAX_NODES + 10):
        x = x + 1
    assert len(nodes_of(x.grad_fn)) == MAX_NODES
