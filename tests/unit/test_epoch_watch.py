"""The watch of epochs tells the largest batch, how far the epoch is, and what it compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from steptime.guest.longest import epoch_watch
from steptime.guest.longest.epoch_watch import EpochWatch, rises
from steptime.guest.timeline.recorder import Recorder
from steptime.measure.memory.epoch_lines import EpochSeen, read_epoch

torch = pytest.importorskip("torch")

NUM, SIZE, LONG = 40, 4, 31


class Texts(torch.utils.data.Dataset):  # type: ignore[misc]
    def __init__(self) -> None:
        self.texts = [[1] * (2 + n % 5) for n in range(NUM)]
        self.texts[LONG] = [1] * 50

    def __len__(self) -> int:
        return NUM

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(self.texts[index])


def pad(texts: list[Any]) -> Any:
    return torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)


class Loop:
    """Calls the watch as the hooks do."""

    def __init__(self, folder: Path, **how: Any) -> None:
        self.loader = torch.utils.data.DataLoader(Texts(), batch_size=SIZE, collate_fn=pad, **how)
        self.watch = EpochWatch(
            torch, Recorder(str(folder), lambda: {"rank": 0}), {id(self.loader.dataset)}
        )
        self.num_updates = 0

    def run(self, *, stop_after: int = 1_000) -> None:
        self.watch.begin(self.loader)
        iterator = iter(self.loader)
        for number, batch in enumerate(iterator):
            if id(iterator) == self.watch.current:
                self.watch.num_handed += 1
            if self.num_updates >= self.watch.due:
                self.watch.see_batch(iterator, batch, self.num_updates)
            self.num_updates += 1
            if number + 1 == stop_after:
                break

    def lines(self) -> list[EpochSeen]:
        text = self.watch.poll(0, is_last=True)
        return [read_epoch(json.loads(line)) for line in text.splitlines()]


def test_the_largest_batch_is_told_before_it_comes(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    loop.run(stop_after=3)

    (line,) = loop.lines()
    assert (line.order, line.num_rows, line.num_batches, line.handed) == ("known", NUM, 10, 3)
    (column,) = line.columns
    assert column.largest == (LONG, 50)
    assert column.padded[-1] == column.summed[-1] == (LONG // SIZE, LONG, SIZE, 50, 63)
    assert column.last[:2] == (2, 9)
    assert line.compared[0] == (0, 0, SIZE, SIZE * 5, SIZE, 5, 14)


def test_nothing_new_is_not_written_again(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    loop.run(stop_after=3)

    assert len(loop.lines()) == 1
    assert loop.lines() == []


@pytest.mark.parametrize("how", [{}, {"num_workers": 1, "persistent_workers": True}])
def test_each_of_the_first_epochs_is_told_with_its_end(tmp_path: Path, how: dict[str, Any]) -> None:
    loop = Loop(tmp_path, shuffle=True, **how)
    for _ in range(5):
        loop.run()

    last = {line.epoch: line for line in loop.lines()}
    assert {epoch: line.handed for epoch, line in last.items()} == {0: 10, 1: 10, 2: 10}
    assert last[2].begun > 3 or last[2].handed == 10


def test_other_loaders_are_not_looked_at(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    loop.watch.trained.clear()
    loop.run()

    assert loop.lines() == []


def test_a_watch_that_was_stopped_looks_at_nothing(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    loop.watch.stop()
    loop.run()

    assert loop.lines() == []


def test_looks_become_rare(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    loop.num_updates = 100
    loop.run(stop_after=2)

    assert loop.watch.due == 200


def test_a_large_data_set_is_looked_at_in_its_first_epoch_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epoch_watch, "SMALL_ROWS", NUM - 1)
    loop = Loop(tmp_path, shuffle=True)
    loop.run()
    loop.run()

    batches = {line.epoch: line.num_batches for line in loop.lines()}
    assert batches == {0: 10, 1: None}


def test_rises_hold_the_largest_and_leave_out_small_ones() -> None:
    measures = [100, 90, 100, 101, 150, 150.5, 150.7, 3]
    rows = [[n] for n in range(len(measures))]

    assert rises(rows, measures) == [[0], [4], [6]]  # type: ignore[arg-type]
