"""Loggers between the phases of a step are timed; inside a phase, their time is the phase's."""

from types import SimpleNamespace

import pytest

from steptime.guest.hooks.patching import PATCHES
from steptime.guest.watchers.logging_calls import LoggingWatcher, hook_loggers
from steptime.record.rows import MisshapenError, logging
from unit.builders import MS, make_end, make_update, measure_lines


class Clock:
    """Advances by hand."""

    now = 0

    def __call__(self):
        return self.now


class SummaryWriter:
    """Stands for TensorBoard's; each call takes 2 ms."""

    clock = None

    def add_scalar(self, value):
        self.clock.now += 2 * MS
        return value

    def add_scalars(self, *values):
        return [self.add_scalar(value) for value in values]

    def fail_to_add(self):
        self.clock.now += MS


@pytest.fixture
def seen():
    """Hooked loggers, the journal of their thread, and their book."""
    journal = SimpleNamespace(num_updates=3, top=0)
    watchers = []
    context = SimpleNamespace(
        torch=SimpleNamespace(compiler=SimpleNamespace(is_dynamo_compiling=lambda: False)),
        local=SimpleNamespace(journal=journal),
        recorder=SimpleNamespace(watchers=watchers),
        guarded=lambda place, act, *args: act(*args),
    )
    targets, num_before = {}, len(PATCHES)
    hook_loggers(context, targets)
    (book,) = watchers
    assert isinstance(book, LoggingWatcher)
    book.clock = SummaryWriter.clock = Clock()
    targets["torch.utils.tensorboard.writer"](SimpleNamespace(SummaryWriter=SummaryWriter))
    yield SimpleNamespace(book=book, journal=journal, writer=SummaryWriter())
    while len(PATCHES) > num_before:
        owner, name, before, _ = PATCHES.pop()
        setattr(owner, name, before)


def test_an_outermost_call_counts_once(seen):
    assert seen.writer.add_scalars(1, 2, 3) == [1, 2, 3]
    assert seen.book.sums == {"tensorboard": [1, 6 * MS]}


def test_calls_inside_a_phase_and_before_the_first_step_do_not_count(seen):
    seen.journal.top = 5
    seen.writer.add_scalar(1)
    seen.journal.top, seen.journal.num_updates = 0, 0
    seen.writer.add_scalar(1)
    seen.writer.fail_to_add()

    assert seen.book.sums == {}


def test_an_exception_passes_and_counts(seen):
    with pytest.raises(TypeError):
        seen.writer.add_scalar()

    assert seen.book.sums["tensorboard"][0] == 1
    assert not seen.book.is_inside


def test_the_sums_are_written_every_other_second(seen):
    seen.writer.add_scalar(1)
    assert seen.book.poll(0, is_last=False) == (
        '{"k": "lg", "rows": [["tensorboard", 1, 2000000]]}\n'
    )
    seen.writer.add_scalar(1)
    assert seen.book.poll(0, is_last=False) == ""
    assert '["tensorboard", 2, 4000000]' in seen.book.poll(0, is_last=True)
    assert seen.book.poll(0, is_last=True) == ""


def test_logging_is_no_useful_step():
    lines = [make_update(n) for n in range(100)]
    found = measure_lines(*lines, {"k": "lg", "rows": [["wandb", 40, 250 * MS]]}, make_end(100))

    parts = {part.name: part for part in found.wall_time.parts}
    assert parts["logging"].total_s == pytest.approx(0.25)
    assert parts["logging"].num == 40
    assert parts["steps"].total_s == pytest.approx(0.75)


@pytest.mark.parametrize("row", [["wandb"], ["wandb", 1, 0.5], [1, 2, 3]])
def test_a_row_of_another_shape_is_refused(row):
    with pytest.raises(MisshapenError):
        logging({"k": "lg", "rows": [row]})
