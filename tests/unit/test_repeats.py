"""What comes again: rows of batches, inputs of frozen modules, samples of a data set."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from steptime.diagnose.ailments.waste.repeated_work import find_frozen, find_same_samples
from steptime.guest.again.repeats import Repeats
from steptime.guest.again.row_book import RowBook
from steptime.guest.sites.file_owners import FileOwners
from steptime.guest.sites.frames import Frames
from steptime.measure.values.machine_load import WorkerSummary
from steptime.measure.values.measurement import Phase
from steptime.measure.values.spent_line import SpentLine, SpentTime, WorkAgain
from steptime.record.loaders.batch_rows import again
from unit.builders import make_measurement

torch = pytest.importorskip("torch")

MILLISECOND = 1_000_000
SECOND = 1_000_000_000


def rows_like(num: int, *shape: int) -> Any:
    return torch.rand(num, *shape, generator=torch.Generator().manual_seed(1))


def see_epochs(book: RowBook, rows: Any, *, num: int, batch: int = 8) -> None:
    for epoch in range(num):
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(epoch))
        for some in order.split(batch):
            book.see([rows[some]])


def test_rows_come_again_once_no_new_ones_came_for_half_a_pass() -> None:
    book = RowBook(torch)
    rows = rows_like(200, 3, 8, 8)

    see_epochs(book, rows, num=1)
    assert not book.comes_again
    see_epochs(book, rows, num=1)

    assert book.comes_again
    assert book.num_distinct == 200


@pytest.mark.parametrize("kind", ["float32", "float64", "bfloat16", "int64", "uint8", "bool"])
def test_rows_of_any_type_are_told_apart(kind: str) -> None:
    book = RowBook(torch)
    rows = (rows_like(100, 40) * 100).to(getattr(torch, kind))
    rows = rows > 0 if kind == "bool" else rows
    rows[:, ::2] = 0

    see_epochs(book, rows, num=2)

    assert book.comes_again


def test_rows_of_small_whole_numbers_are_told_apart() -> None:
    book = RowBook(torch)
    rows = torch.cartesian_prod(*[torch.arange(10)] * 4)  # each row of four digits

    see_epochs(book, rows, num=1, batch=64)

    assert book.num_distinct == 10_000
    assert not book.comes_again


def test_a_smaller_last_batch_has_the_same_rows_in_the_next_epoch() -> None:
    book = RowBook(torch)
    rows = rows_like(150, 28, 28)

    see_epochs(book, rows, num=3, batch=64)  # 64, 64 and 22

    assert book.num_distinct == 150


def test_flipped_rows_are_others() -> None:
    book = RowBook(torch)
    rows = rows_like(100, 16, 16)
    see_epochs(book, rows, num=1)

    see_epochs(book, rows.flip(2), num=1)

    assert book.num_distinct == 200


def test_padding_with_zeros_makes_no_other_row() -> None:
    book = RowBook(torch)
    rows = torch.randint(1, 2000, (90, 30), generator=torch.Generator().manual_seed(1))
    see_epochs(book, rows, num=1)

    see_epochs(book, torch.nn.functional.pad(rows, (0, 7)), num=1)

    assert book.num_distinct == 90


def test_many_rows_are_counted_by_some_of_them() -> None:
    book = RowBook(torch)
    rows = rows_like(40_000, 8)

    see_epochs(book, rows, num=2, batch=4000)

    assert book.comes_again
    assert len(book.kept) <= 16_384
    assert book.num_distinct == pytest.approx(40_000, rel=0.05)


class Process:
    """A process whose frozen encoder is called, on a clock in its own hands."""

    def __init__(self) -> None:
        journal = SimpleNamespace(probe=None)
        frames = Frames(FileOwners(torch))
        context = SimpleNamespace(torch=torch, frames=frames, local=SimpleNamespace())
        context.local.journal = journal
        self.repeats = Repeats(context)  # type: ignore[arg-type]
        self.encoder = torch.nn.Linear(6, 4).eval().requires_grad_(False)

    def call(self, rows: Any, module: Any = None) -> None:
        module = self.encoder if module is None else module
        with torch.no_grad():
            result = module(rows)
        self.repeats.see_call(module, (rows,), {}, result, SECOND)

    def told(self) -> list[Any]:
        text = self.repeats.poll(0, is_last=True)
        return [] if not text else again(json.loads(text))


def test_a_frozen_module_is_told_with_the_size_of_its_results() -> None:
    process, rows = Process(), rows_like(160, 6)

    for _ in range(2):
        for batch in rows.split(16):
            process.call(batch)

    (row,) = process.told()
    assert (row.what, row.name, row.calls) == ("module", "Linear", 20)
    assert (row.num_distinct, row.result_bytes) == (160, 16)
    assert row.total_ns == 20 * SECOND


def follow(process: Process) -> None:
    """An average of weights, or a target network, moves."""
    process.encoder.weight.data.mul_(0.9)


def train(process: Process) -> None:
    process.encoder.requires_grad_(True)


@pytest.mark.parametrize("change", [follow, train])
def test_a_module_that_moves_is_not_frozen(change: Any) -> None:
    process, rows = Process(), rows_like(160, 6)

    for _ in range(4):
        for batch in rows.split(16):
            process.call(batch)
        change(process)

    assert process.told() == []


def test_inputs_with_random_augmentations_never_come_again() -> None:
    process = Process()

    for seed in range(40):
        rows = torch.rand(16, 6, generator=torch.Generator().manual_seed(seed))
        process.call(rows)

    assert process.told() == []


def test_one_batch_that_was_tried_first_is_not_taken_for_the_data() -> None:
    process, rows = Process(), rows_like(16, 6)
    for _ in range(20):
        process.call(rows)
    assert process.told()

    for seed in range(20):
        process.call(torch.rand(16, 6, generator=torch.Generator().manual_seed(seed)))

    assert process.told() == []


def test_a_module_that_needs_gradients_is_never_looked_at() -> None:
    process, rows = Process(), rows_like(16, 6)
    critic = torch.nn.Linear(6, 1).eval()

    for _ in range(40):
        process.call(rows, critic)

    assert process.told() == []


def test_another_number_beside_the_rows_makes_other_inputs() -> None:
    process, rows = Process(), rows_like(16, 6)

    for time in range(40):
        with torch.no_grad():
            result = process.encoder(rows)
        process.repeats.see_call(process.encoder, (rows, time), {}, result, SECOND)

    assert process.told() == []


def test_a_look_leaves_the_random_numbers_alone() -> None:
    process, rows = Process(), rows_like(16, 6)
    before = torch.random.get_rng_state()

    process.call(rows)

    assert torch.equal(before, torch.random.get_rng_state())


def test_batches_of_a_data_set_are_told_apart() -> None:
    process = Process()
    data = torch.utils.data.TensorDataset(rows_like(160, 6), torch.arange(160))
    process.repeats.see_batch(data, [data.tensors[0][:16], data.tensors[1][:16]])
    (known,) = process.repeats.data_sets.values()
    known.first_ns -= 3600 * SECOND  # looks cost nothing of an hour

    for _ in range(2):
        for x, y in zip(*(one.split(16) for one in data.tensors), strict=True):
            process.repeats.see_batch(data, [x, y])

    (row,) = process.told()
    assert (row.what, row.name, row.num_distinct) == ("data_set", "TensorDataset", 160)


def work(what: str, s_per_call: float = 0.0, name: str = "Encoder") -> WorkAgain:
    return WorkAgain(
        what=what,
        name=name,
        calls_per_step=1.0,
        s_per_call=s_per_call,
        num_rows=360,
        num_distinct=240,
        kept_bytes=1 << 20,
    )


def test_a_frozen_call_has_its_share_of_a_step() -> None:
    measurement = make_measurement(compute_s=0.5, repeats=(work("module", 0.3),))

    found = find_frozen(measurement)

    assert found is not None
    assert found.evidence[0].value == pytest.approx(0.6)
    assert found.headroom_speedup == pytest.approx(2.5)


def test_a_short_frozen_call_is_no_finding() -> None:
    assert find_frozen(make_measurement(compute_s=0.5, repeats=(work("module", 0.01),))) is None


def test_the_same_samples_matter_where_steps_wait_for_them() -> None:
    waiting = make_measurement(input_wait_s=0.5, repeats=(work("data_set"),))
    computing = make_measurement(repeats=(work("data_set"),))

    assert find_same_samples(waiting) is not None
    assert find_same_samples(computing) is None
    assert find_same_samples(replace(waiting, repeats=())) is None
    in_memory = (work("data_set", name="TensorDataset"),)
    assert find_same_samples(replace(waiting, repeats=in_memory)) is None


def phase(name: str, fraction: float) -> Phase:
    return Phase(name=name, median_s=fraction, mean_s=fraction, fraction=fraction)


def test_samples_made_again_have_the_time_of_reading_them_and_not_the_whole_wait() -> None:
    waiting = make_measurement(input_wait_s=0.9, repeats=(work("data_set"),))
    wait, *others = [one for one in waiting.phases if one.name not in ("fetch", "collate")]
    parts = (phase("fetch", 0.3), phase("collate", 0.1))
    found = find_same_samples(replace(waiting, phases=(wait, *others, *parts)))

    assert found is not None
    assert found.cause == "same_samples"
    assert found.evidence[0].value == pytest.approx(0.4)
    assert found.headroom_speedup == pytest.approx(1 / 0.6)


def test_work_in_a_collate_of_the_script_is_no_reading() -> None:
    waiting = make_measurement(input_wait_s=0.9, repeats=(work("data_set"),))
    others = [one for one in waiting.phases if one.name not in ("fetch", "collate")]
    parts = (phase("fetch", 0.01), phase("collate", 0.8))
    line = SpentLine(
        what="collate",
        file="a.py",
        line=7,
        function="to_batch",
        callee="",
        fraction=0.8,
        num_samples=60,
        growth=0.0,
    )
    spent = SpentTime(num_samples=80, num_updates=80, step_s=1.0, without_line=0.0, lines=(line,))
    found = find_same_samples(replace(waiting, phases=(*others, *parts), spent=spent))

    assert found is not None
    assert (found.cause, found.evidence[0].name) == ("collated_again", "collate")
    assert found.evidence[0].value == pytest.approx(0.8)


class Tuned(torch.nn.Module):  # type: ignore[misc]
    """A model that trains, with a frozen part, parts of which are frozen, too."""

    def __init__(self) -> None:
        super().__init__()
        layers = torch.nn.Linear(6, 5), torch.nn.Linear(5, 4)
        self.encoder = torch.nn.Sequential(*layers).eval().requires_grad_(False)
        self.head = torch.nn.Linear(4, 1)


def test_the_outermost_frozen_parts_of_a_model_are_followed() -> None:
    process, model, rows = Process(), Tuned(), rows_like(80, 6)
    process.repeats.find_parts(model)
    assert list(process.repeats.parts) == [id(model.encoder)]

    for _ in range(3):
        for some in rows.split(8):
            process.repeats.see_part(model.encoder, ((some,), {}), model.encoder(some), SECOND)

    (row,) = process.told()
    assert (row.what, row.name, row.num_distinct) == ("part", "Tuned.encoder", 80)


def test_a_part_that_trains_again_is_left_alone() -> None:
    process, model, rows = Process(), Tuned(), rows_like(8, 6)
    process.repeats.find_parts(model)

    model.encoder.train()
    process.repeats.see_part(model.encoder, ((rows,), {}), model.encoder(rows), SECOND)

    assert not process.repeats.parts


def test_samples_that_workers_make_cost_a_step_what_the_workers_need() -> None:
    workers = WorkerSummary(
        num_workers=4, num_batches=400, fetch_s_per_batch=0.002, collate_s_per_batch=0.0
    )
    missing = dict.fromkeys(("fetch", "collate"), "in_workers")
    waiting = make_measurement(
        input_wait_s=0.5,  # for a core, say
        repeats=(work("data_set"),),
        missing=missing,
    )

    busy = replace(workers, fetch_s_per_batch=1.6)

    assert find_same_samples(replace(waiting, workers=workers)) is None
    found = find_same_samples(replace(waiting, workers=busy))
    assert found is not None
    assert found.evidence[0].value == pytest.approx(0.4)  # of a step of a second
