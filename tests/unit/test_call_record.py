"""The record of collectives: what the guest writes into shared memory, and how it is read back."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from report_cases import desynced
from steptime.desync.recorded_calls import RankCalls, RankGroup, decode_calls
from steptime.guest.sites.file_owners import FileOwners
from steptime.guest.watchers import call_record
from steptime.guest.watchers.call_record import Arguments, CallRecord, find_arguments
from steptime.measure.fold.run_records import ErrorSeen, ProcessExit
from steptime.measure.values.desync import Desync
from steptime.measure.wall.stall_file import StallFile, read_ended_desync
from steptime.record.live import call_ring
from steptime.record.live.call_ring import CALLS_AT, NUM_CALLS, OPERATIONS, SIZE, calls_file
from steptime.watch.stalls import call_files, ended_calls
from steptime.watch.stalls.call_files import read_calls
from steptime.watch.stalls.ended_calls import conclude_calls, explain_end
from unit.test_desync import FIRST, ODD, call, make_rank, usual, world

HERE = str(Path(__file__).parent)
ALL_REDUCE, BARRIER = OPERATIONS.index("all_reduce"), OPERATIONS.index("barrier")
TENSOR = Arguments(tensor=0, tensor_name="tensor", group=2)
NOTHING = Arguments(tensor=99, tensor_name="", group=0)


class Tensor:
    dtype = "torch.float32"

    def __init__(self, elements: int) -> None:
        self.elements = elements

    def numel(self) -> int:
        return self.elements


class Parameter(Tensor):
    pass


class Group:
    def __init__(self, name: str, *ranks: int) -> None:
        self.group_name = name
        self.ranks = ranks


WORLD = Group("0", 0, 1)


class FakeTorch:
    """As much of torch as the record asks for."""

    __file__ = "/env/torch/__init__.py"
    Tensor = Tensor
    nn = SimpleNamespace(Parameter=Parameter)
    num_modes = 0

    def __init__(self) -> None:
        self._C = SimpleNamespace(
            _len_torch_function_stack=lambda: self.num_modes, _get_tracing_state=lambda: None
        )
        self.distributed = SimpleNamespace(
            get_rank=lambda: 1,
            get_world_size=lambda: 2,
            get_process_group_ranks=lambda group: list(group.ranks),
            distributed_c10d=SimpleNamespace(_get_default_group=lambda: WORLD),
        )


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of the shared memory."""
    folder = tmp_path / "shm"
    folder.mkdir()
    monkeypatch.setattr(call_ring, "FOLDER", str(folder))
    return folder


class Run:
    """A run whose only process is this one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.torch = FakeTorch()
        self.record = CallRecord(self.torch, str(folder), FileOwners(self.torch))

    def begin(self, operation: int, where: Arguments, *args: Any, **kwargs: Any) -> int:
        """A wrapper, whose caller's line is the line of the call."""
        return self.record.begin(operation, where, args, kwargs)

    def read(self) -> RankCalls:
        (found,) = read_calls(self.folder, cwd=HERE)
        return found


@pytest.fixture
def run(tmp_path: Path, shared: Path) -> Run:
    return Run(tmp_path / "run-1")


def test_a_call_is_written_before_it_is_entered_and_marked_when_it_returns(run: Run) -> None:
    place = run.begin(ALL_REDUCE, TENSOR, Tensor(77))

    found = run.read()
    (seen,) = found.calls
    assert (found.rank, found.world_size, found.pid) == (1, 2, os.getpid())
    assert (seen.operation, seen.number, seen.elements, seen.dtype) == (
        *("all_reduce", 1, 77, "float32"),
    )
    assert (seen.group.name, seen.group.ranks) == ("0", (0, 1))
    assert (seen.where or "").startswith("test_call_record.py:")
    assert seen.is_open
    assert not seen.waits_later

    run.record.end(place)
    assert not run.read().calls[0].is_open


def test_groups_are_counted_apart_and_the_default_one_may_be_named(run: Run) -> None:
    pair = Group("7", 1, 3)
    for group in (None, pair, WORLD, pair):
        run.begin(BARRIER, NOTHING, group)
    run.begin(BARRIER, NOTHING, group=pair)

    seen = [(one.group.name, one.number) for one in run.read().calls]
    assert seen == [("0", 1), ("7", 1), ("0", 2), ("7", 2), ("7", 3)]


def test_sends_are_counted_apart(run: Run) -> None:
    sent = TENSOR._replace(is_sent=True)
    for where, operation in ((TENSOR, "all_reduce"), (sent, "send"), (TENSOR, "all_reduce")):
        run.begin(OPERATIONS.index(operation), where, Tensor(1))

    seen = [(one.operation, one.number) for one in run.read().calls]
    assert seen == [("all_reduce", 1), ("send", 1), ("all_reduce", 2)]


def test_a_group_without_this_rank_is_left_out(run: Run) -> None:
    assert run.begin(BARRIER, NOTHING, -100) == 0
    assert run.read().calls == ()


def test_what_was_started_to_be_waited_for_is_marked(run: Run) -> None:
    run.begin(ALL_REDUCE, TENSOR, tensor=Parameter(5), async_op=True)

    (seen,) = run.read().calls
    assert (seen.waits_later, seen.elements) == (True, 5)


def test_a_mode_of_the_scripts_does_not_see_us_read_a_size(run: Run) -> None:
    run.torch.num_modes = 1
    run.begin(ALL_REDUCE, TENSOR, Tensor(77))

    (seen,) = run.read().calls
    assert (seen.elements, seen.dtype) == (None, None)


def test_other_kinds_of_tensors_have_no_size(run: Run) -> None:
    class Other(Tensor):
        pass

    run.begin(ALL_REDUCE, TENSOR, Other(77))
    assert run.read().calls[0].elements is None


def test_the_newest_calls_are_kept(run: Run) -> None:
    for size in range(NUM_CALLS + 10):
        run.record.end(run.begin(ALL_REDUCE, TENSOR, Tensor(size)))

    calls = run.read().calls
    assert [one.elements for one in calls] == list(range(10, NUM_CALLS + 10))
    assert (calls[0].number, calls[-1].number) == (11, NUM_CALLS + 10)


def test_where_names_do_not_fit_calls_have_no_place(run: Run) -> None:
    run.begin(ALL_REDUCE, TENSOR, Tensor(1))
    run.record.text_at = CALLS_AT
    run.record.files.clear()
    run.begin(ALL_REDUCE, TENSOR, Tensor(2))

    assert [one.where is None for one in run.read().calls] == [False, True]


def test_a_forked_child_writes_its_own(run: Run) -> None:
    run.begin(ALL_REDUCE, TENSOR, Tensor(1))
    os.rename(calls_file(str(run.folder), os.getpid()), calls_file(str(run.folder), 1))
    run.record.reset()
    run.begin(BARRIER, NOTHING)

    mine = [one for one in read_calls(run.folder, cwd=None) if one.pid == os.getpid()]
    assert [(one.operation, one.number) for one in mine[0].calls] == [("barrier", 1)]


def test_where_there_is_no_shared_memory_nothing_is_written_and_nothing_fails(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_ring, "FOLDER", str(run.folder / "nowhere"))

    assert [run.begin(BARRIER, NOTHING), run.begin(BARRIER, NOTHING)] == [0, 0]
    assert run.record.is_off


def test_in_a_trial_nothing_is_written(run: Run, shared: Path) -> None:
    run.record.switch_off()
    run.record.reset()  # a forked child

    assert run.begin(BARRIER, NOTHING) == 0
    assert list(shared.iterdir()) == []


def test_memory_that_cannot_be_had_leaves_no_file(
    run: Run, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(call_record.os, "posix_fallocate", refuse)

    assert run.begin(BARRIER, NOTHING) == 0
    assert list(shared.iterdir()) == []


def test_arguments_are_found_below_decorators() -> None:
    def all_gather(tensor_list: Any, tensor: Any, group: Any = None, async_op: Any = None) -> None:
        """As in torch."""

    def wrapper(*args: Any, **kwargs: Any) -> None: ...

    wrapper.__wrapped__ = all_gather  # type: ignore[attr-defined]
    assert find_arguments(wrapper) == Arguments(tensor=1, tensor_name="tensor", group=2)


@pytest.mark.parametrize("size", [0, SIZE - 1, SIZE])
def test_anything_else_is_no_record(size: int) -> None:
    assert decode_calls(bytes(size), pid=1, cwd=None) is None


def test_damaged_names_and_places_are_left_out(run: Run) -> None:
    run.begin(ALL_REDUCE, TENSOR, Tensor(1))
    path = calls_file(str(run.folder), os.getpid())
    data = bytearray(Path(path).read_bytes())
    data[call_ring.TEXTS_AT : call_ring.TEXTS_AT + 9] = b"\xff" * 9  # the world's line
    found = decode_calls(bytes(data), pid=1, cwd=None)

    assert found is not None
    assert found.calls == ()


# -- when the command has ended


def make_exit(pid: int, **error: Any) -> ProcessExit:
    seen = (
        ErrorSeen(type="RuntimeError", text="Connection closed by peer", **error) if error else None
    )
    return ProcessExit(
        pid=pid, updates=1, backwards=1, forwards=1, batches=1, failures={}, error=seen
    )


def with_pids(*ranks: RankCalls) -> list[RankCalls]:
    return [
        RankCalls(rank=r.rank, world_size=r.world_size, calls=r.calls, pid=100 + r.rank)
        for r in ranks
    ]


def test_ranks_that_died_in_different_calls_had_lost_each_other() -> None:
    calls = with_pids(
        make_rank(0, 2, [*usual(2), call("all_reduce", 77, FIRST, world(2))]),
        make_rank(1, 2, [*usual(2), call("all_reduce", 5000, ODD, world(2))]),
    )
    failed = {100: make_exit(100, file="/p/train.py", line=10, phase="communication")}

    found = explain_end(calls, failed, cwd="/p")

    assert found is not None
    assert (found.what, found.culprits, found.where) == ("shape", (1,), ODD)


@pytest.mark.parametrize("exits", [{}, {101: make_exit(101)}])
def test_a_rank_that_left_is_why_the_other_failed(exits: dict[int, ProcessExit]) -> None:
    calls = with_pids(
        make_rank(0, 2, [*usual(2), call("all_reduce", 77, FIRST, world(2))]),
        make_rank(1, 2, usual(2), is_open=False),
    )
    failed = {100: make_exit(100, file="/p/train.py", line=10, phase="communication")}

    found = explain_end(calls, failed | exits, cwd="/p")

    assert found is not None
    assert (found.what, found.culprits) == ("left", (1,))


def test_a_rank_that_was_ended_inside_of_a_call_has_not_left() -> None:
    group = RankGroup(name="1", ranks=(0, 1))
    calls = with_pids(
        make_rank(0, 2, [*usual(2), call("all_reduce", 77, FIRST, world(2))]),
        make_rank(1, 2, [*usual(2), call("all_reduce", 77, FIRST, group)]),
    )
    failed = {101: make_exit(101, file="/p/train.py", line=10, phase="communication")}

    assert explain_end(calls, failed, cwd="/p") is None


def test_an_exception_outside_of_a_collective_speaks_for_itself() -> None:
    calls = with_pids(
        make_rank(0, 2, [*usual(2), call("all_reduce", 77, FIRST, world(2))]),
        make_rank(1, 2, usual(2), is_open=False),
    )
    raised = {
        100: make_exit(100, file="/p/train.py", line=10, phase="communication"),
        101: make_exit(101, file="/p/train.py", line=9, phase="forward"),
    }

    assert explain_end(calls, raised, cwd="/p") is None
    assert explain_end(calls, {101: raised[101]}, cwd="/p") is None


def test_the_records_of_a_command_that_has_ended_are_removed(
    run: Run, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.folder.mkdir()
    run.begin(BARRIER, NOTHING)
    os.rename(calls_file(str(run.folder), os.getpid()), calls_file(str(run.folder), 2**22 + 1))

    conclude_calls(run.folder, cwd=None, has_failed=True)

    assert list(shared.iterdir()) == []
    assert read_ended_desync(run.folder) is None


@pytest.mark.parametrize(("last", "is_told"), [(24, False), (21, True)])
def test_a_rank_that_is_gone_from_where_a_stall_found_it_was_ended(
    run: Run, monkeypatch: pytest.MonkeyPatch, last: int, *, is_told: bool
) -> None:
    calls = with_pids(
        make_rank(0, 2, [*usual(2), call("all_reduce", 77, FIRST, world(2))]),
        make_rank(1, 2, usual(2), is_open=False),
    )
    run.folder.mkdir()
    run.begin(BARRIER, NOTHING)  # so that there is a file
    seen = Desync(
        what="data", culprits=(1,), others=(0,), last=calls[1].calls[last - 1].told(2), where=ODD
    )
    StallFile(run.folder).add(replace(desynced().stalls[0], desync=seen))
    error = {"type": "RuntimeError", "text": "", "file": "a.py", "line": 1}
    exit_line = {"k": "exit", "pid": 100, "updates": 1, "backwards": 1, "forwards": 1, "batches": 1}
    exit_line |= {"failures": {}, "error": error | {"phase": "communication"}}
    (run.folder / "processes.jsonl").write_text(json.dumps(exit_line) + "\n")
    monkeypatch.setattr(ended_calls, "read_calls", lambda *_, **__: tuple(calls))

    conclude_calls(run.folder, cwd=None, has_failed=True)

    found = read_ended_desync(run.folder)
    assert (found is not None and found.desync.what == "left") == is_told


def test_the_record_of_a_process_that_goes_on_is_kept(run: Run, shared: Path) -> None:
    run.begin(BARRIER, NOTHING)
    conclude_calls(run.folder, cwd=None, has_failed=False)

    assert len(list(shared.iterdir())) == 1


def test_what_a_killed_steptime_left_is_removed_after_a_day(run: Run, shared: Path) -> None:
    names = [f"steptime-{'0' * 16}-{2**22 + 1}", f"steptime-{'0' * 16}-{os.getpid()}", "other"]
    for name in names:
        (shared / name).write_bytes(b"")
    now = (shared / "other").stat().st_mtime
    call_files.remove_forgotten(now + 60)
    assert len(list(shared.iterdir())) == 3

    call_files.remove_forgotten(now + call_files.FORGOTTEN_S + 60)
    assert sorted(path.name for path in shared.iterdir()) == sorted(names[1:])
