"""Threads that autograd started note in the journal of the thread that called backward."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from steptime.guest.timeline.journal import Journal
from steptime.guest.timeline.recorder import Recorder
from steptime.guest.timeline.thread_journals import Journals, inside_backward


def make_journals(folder: Path, *, is_inside: bool) -> Journals:
    recorder = Recorder(str(folder), lambda: {"rank": 0})
    return Journals(lambda: Journal(recorder), lambda: is_inside)


def test_each_thread_of_the_users_has_a_journal_of_its_own(tmp_path: Path) -> None:
    journals = make_journals(tmp_path, is_inside=False)
    first = journals.take()
    first.in_backward = True

    assert journals.take() is not first


def test_a_thread_of_autograd_notes_where_backward_was_called(tmp_path: Path) -> None:
    journals = make_journals(tmp_path, is_inside=True)
    idle, caller = journals.take(), journals.take()
    caller.in_backward = True

    assert journals.take() is caller
    assert idle is not caller


def test_where_two_wait_in_backward_nobody_knows_whose_it_is(tmp_path: Path) -> None:
    journals = make_journals(tmp_path, is_inside=True)
    callers = [journals.take(), journals.take()]
    for caller in callers:
        caller.in_backward = True

    assert journals.take() not in callers


def test_a_torch_that_cannot_say_is_taken_to_be_outside() -> None:
    assert not inside_backward(SimpleNamespace())()
    assert not inside_backward(SimpleNamespace(_current_graph_task_id=lambda: -1))()
    assert inside_backward(SimpleNamespace(_current_graph_task_id=lambda: 3))()
