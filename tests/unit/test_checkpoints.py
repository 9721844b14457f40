"""What checkpoints are spent on: the guest's book, and the sums that are made of its rows."""

import io
import pickle
from types import SimpleNamespace

import pytest

from steptime.guest.timeline.recorder import Recorder
from steptime.guest.watchers.checkpoints import (
    COPY,
    EVERY,
    GATHER,
    MAX_ROWS,
    SERIALIZE,
    WRITE,
    CheckpointWatcher,
)
from steptime.measure.fold.run_fold import measure
from steptime.record.rows import MisshapenError, checkpoints
from unit.builders import BUCKETS, MS, make_end, make_head, make_row, read


class Clock:
    """Advances by hand."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        return self.now


@pytest.fixture
def book():
    recorder = Recorder("/nowhere", dict)
    recorder.zero_ns = 0
    return CheckpointWatcher(recorder, Clock())


def spend(book, ms):
    book.clock.now += ms * MS


def test_the_parts_of_a_checkpoint_sum_to_its_time(book):
    spend(book, 5)
    assert book.begin("distributed", GATHER)
    spend(book, 10)
    for part, ms in ((SERIALIZE, 20), (COPY, 30), (WRITE, 40)):
        book.turn("distributed", part)
        spend(book, ms)
    book.end(is_beside=False)

    (row,) = book.rows
    assert row == ["distributed", 5 * MS, 100 * MS, 10 * MS, 30 * MS, 20 * MS, 40 * MS, 0, 0, 1]


def test_a_checkpoint_inside_another_one_is_part_of_it(book):
    assert book.begin("distributed", GATHER)
    assert not book.begin("torch", WRITE)
    spend(book, 10)
    book.turn("torch", WRITE)  # not of the one that is open
    book.end(is_beside=True)

    (row,) = book.rows
    assert row[2:4] == [10 * MS, 10 * MS]
    assert row[-2:] == [1, 1]


def test_many_checkpoints_are_written_thinner(book):
    for _ in range(MAX_ROWS + 3 * EVERY):
        book.begin("torch", WRITE)
        spend(book, 1)
        book.end(is_beside=False)

    assert sum(row[-1] for row in book.rows) == MAX_ROWS + 3 * EVERY
    assert len(book.rows) == MAX_ROWS + 3


def test_the_rows_are_written_once(book):
    book.begin("torch", WRITE)
    book.end(is_beside=False)

    assert '"k": "cp"' in book.poll(0, is_last=False)
    assert book.poll(0, is_last=True) == ""


@pytest.mark.parametrize("row", [["torch"], [1] * 10, ["torch", *[0.5] * 9]])
def test_a_row_of_another_shape_is_refused(row):
    with pytest.raises(MisshapenError):
        checkpoints({"k": "cp", "rows": [row]})


# -- torch.save


@pytest.fixture
def torch(book, monkeypatch):
    """Torch with its saving hooked, and put back at the end."""
    torch = pytest.importorskip("torch")
    from steptime.guest.frameworks.torch import checkpoint_hooks
    from steptime.guest.hooks.patching import PATCHES

    num_before, save = len(PATCHES), torch.save
    notes = []
    journal = SimpleNamespace(
        top=0, num_updates=0, note_with_cpu=lambda act, top: notes.append((act, top))
    )
    context = SimpleNamespace(
        torch=torch,
        local=SimpleNamespace(journal=journal),
        journal=journal,
        recorder=book.recorder,
        checkpoints=book,
        guarded=lambda place, act, *args: act(*args),
        notes=notes,
    )
    checkpoint_hooks.hook_checkpoints(context)
    yield torch
    torch.save = save
    while len(PATCHES) > num_before:
        owner, name, before, _ = PATCHES.pop()
        setattr(owner, name, before)


class Slow:
    """Takes its time to be pickled."""

    def __init__(self, book):
        self.book = book

    def __reduce__(self):
        self.book.clock.now += 30 * MS
        return dict, ()


class SlowFile(io.BytesIO):
    """Takes its time to be written to."""

    book = None

    def write(self, data):
        self.book.clock.now += MS
        return super().write(data)


def test_pickling_and_writing_are_told_apart(book, torch):
    file = SlowFile()
    file.book = book
    torch.save({"weights": torch.arange(1000), "slow": Slow(book)}, file)

    (row,) = book.rows
    what, _, total, gather, copy, serialize, write, num_bytes, *_ = row
    assert (what, gather, copy, serialize) == ("torch", 0, 0, 30 * MS)
    assert write > 0
    assert serialize + write == total
    assert num_bytes >= 8000


def test_the_file_is_the_same(book, torch):
    from steptime.guest.hooks.patching import PATCHES

    original = next(before for owner, name, before, _ in PATCHES if name == "save")
    first, second = io.BytesIO(), io.BytesIO()
    state = {"weights": torch.arange(1000.0), "epoch": 3}
    torch.save(state, first)
    own = torch.serialization.save
    torch.serialization.save = original
    try:
        original(state, second)
    finally:
        torch.serialization.save = own

    assert first.getvalue() == second.getvalue()
    assert pickle.loads(pickle.dumps(torch.save)) is torch.save


def test_a_failure_to_save_is_the_scripts_own(book, torch):
    with pytest.raises((AttributeError, pickle.PicklingError)):
        torch.save({"not picklable": lambda: None}, io.BytesIO())

    assert not book.open
    assert len(book.rows) == 1


def test_the_old_format_is_not_told_apart(book, torch):
    torch.save({"a": torch.ones(2)}, io.BytesIO(), _use_new_zipfile_serialization=False)

    (row,) = book.rows
    assert row[0] == "torch"


# -- sums


def measured(rows, *, num=100):
    lines = [make_head(t_unix_s=1005.0)]
    lines.append({"k": "u", "rows": [make_row(n) for n in range(num)]})
    lines += [{"k": "cp", "rows": rows}] if rows else []
    return measure(read({"rank-0.jsonl": [*lines, make_end(num)]})).wall_time.checkpoints


def test_the_sums_are_over_all_that_the_script_waited_for():
    rows = [
        ["torch", 100 * MS, 100 * MS, 0, 10 * MS, 20 * MS, 60 * MS, 4096, 0, 1],
        ["staging", 300 * MS, 50 * MS, 0, 50 * MS, 0, 0, 0, 0, 2],
        ["distributed", 400 * MS, 1000 * MS, 400 * MS, 0, 0, 600 * MS, 0, 1, 1],
    ]
    found = measured(rows)

    assert (found.num, found.num_beside) == (3, 1)
    assert found.total_s == pytest.approx(0.2)
    assert found.copy_s == pytest.approx(0.11)
    assert found.serialize_s == pytest.approx(0.02)
    assert found.write_s == pytest.approx(0.06)
    assert found.other_s == pytest.approx(0.01)
    assert found.gather_s == 0
    assert found.num_bytes == 4096
    assert found.beside_s == pytest.approx(1.0)


def test_steps_beside_an_asynchronous_checkpoint_are_compared_with_the_others():
    lines = [make_row(n) for n in range(100)]
    for n, row in enumerate(lines):
        if not 40 <= n < 60:  # a step takes 8 ms; beside the checkpoint it takes 10
            row[7 + BUCKETS.index("forward")] -= 2 * MS
            row[3] += 2 * MS
    beside = [["distributed", 400 * MS, 199 * MS, 0, 0, 0, 199 * MS, 0, 1, 1]]
    files = {
        "rank-0.jsonl": [
            make_head(t_unix_s=1005.0),
            {"k": "u", "rows": lines},
            {"k": "cp", "rows": beside},
            make_end(100),
        ]
    }
    found = measure(read(files)).wall_time.checkpoints

    assert found.num_steps_beside == 20
    assert found.slowdown.estimate == pytest.approx(10 / 8)
    assert found.slowdown.n == 20


def test_too_few_steps_say_nothing_of_a_slowdown():
    found = measured([["distributed", 400 * MS, 9 * MS, 0, 0, 0, 9 * MS, 0, 1, 1]])
    assert found.slowdown is None
    assert found.num_bytes is None


def test_no_checkpoint_is_not_zero():
    assert measured([]) is None
