"""What a stack means: what a rank waits in, at which line, and for whom."""

from __future__ import annotations

import pytest

from steptime.measure.values.stall import StackFrame, StalledRank, ThreadStack
from steptime.watch.stalls.process_stacks import KernelState, ProcessProbe
from steptime.watch.stalls.stack_summary import (
    find_culprits,
    span_of,
    summarize_stack,
    waits_in,
    where_of,
)

ENV = "/env/lib/python3.11"
TORCH = f"{ENV}/site-packages/torch"
SCRIPT = "/home/me/project/train.py"


def make_stack(*calls: tuple[str, str]) -> ThreadStack:
    """A stack of (function, file), innermost first."""
    frames = tuple(
        StackFrame(function=function, file=file, line=10 + i)
        for i, (function, file) in enumerate(calls)
    )
    return ThreadStack(pid=1, thread="MainThread", frames=frames, is_main=True)


MAIN = ("main", SCRIPT)
REDUCE = make_stack(("all_reduce", f"{TORCH}/distributed/distributed_c10d.py"), MAIN)
BACKWARD = make_stack(("_engine_run_backward", f"{TORCH}/autograd/graph.py"), MAIN)
SAVE = make_stack(("save", f"{TORCH}/serialization.py"), MAIN)
COMPILE = make_stack(("_compile", f"{TORCH}/_dynamo/convert_frame.py"), MAIN)
QUEUE = make_stack(("wait", f"{ENV}/threading.py"), ("get", f"{ENV}/queue.py"), MAIN)
LOADER = make_stack(
    ("wait", f"{ENV}/threading.py"), ("_get_data", f"{TORCH}/utils/data/dataloader.py"), MAIN
)
DATASET = make_stack(
    ("__getitem__", "/home/me/project/data.py"),
    ("fetch", f"{TORCH}/utils/data/_utils/fetch.py"),
    ("__next__", f"{TORCH}/utils/data/dataloader.py"),
    MAIN,
)
PLAIN = make_stack(MAIN)


@pytest.mark.parametrize(
    ("stack", "kernel", "expected"),
    [
        (REDUCE, KernelState(), "collective"),
        (BACKWARD, KernelState(), "collective"),
        (SAVE, KernelState(), "disk"),
        (COMPILE, KernelState(), "compute"),
        (QUEUE, KernelState(), "lock"),
        (LOADER, KernelState(), "input"),
        (DATASET, KernelState(), "input"),
        (PLAIN, KernelState(syscall="clock_nanosleep"), "sleep"),
        (PLAIN, KernelState(syscall="futex"), "lock"),
        (PLAIN, KernelState(syscall="read", is_file=True), "disk"),
        (PLAIN, KernelState(syscall="read"), None),
        (PLAIN, KernelState(state="D"), "disk"),
        (None, KernelState(), None),
    ],
)
def test_an_idle_rank_waits_in_what_its_innermost_calls_say(
    stack: ThreadStack | None, kernel: KernelState, expected: str | None
) -> None:
    assert waits_in(stack, kernel, is_one_of_many=True, is_busy=False) == expected


def test_a_backward_that_computes_or_is_alone_waits_for_nobody() -> None:
    assert waits_in(BACKWARD, KernelState(), is_one_of_many=True, is_busy=True) == "compute"
    assert waits_in(BACKWARD, KernelState(), is_one_of_many=False, is_busy=False) == "compute"


def test_a_data_set_that_reduces_inside_is_in_a_collective() -> None:
    stack = make_stack(*[(f.function, f.file) for f in (*REDUCE.frames[:1], *DATASET.frames)])

    assert waits_in(stack, KernelState(), is_one_of_many=True, is_busy=False) == "collective"


def test_where_is_the_innermost_line_of_the_users() -> None:
    assert where_of(DATASET, cwd="/home/me/project") == "data.py:10"
    assert where_of(REDUCE, cwd="/elsewhere") == f"{SCRIPT}:11"
    assert where_of(None, cwd=None) is None


def test_without_a_line_of_the_users_a_packages_is_named() -> None:
    package = f"{ENV}/site-packages/lightning/trainer.py"
    stack = make_stack(("wait", f"{ENV}/threading.py"), ("fit", package))

    assert where_of(stack, cwd=None) == f"{package}:11"


def test_spans_are_known_by_their_calls_and_an_evaluation_by_its_line() -> None:
    workers = make_stack(("__iter__", f"{TORCH}/utils/data/dataloader.py"), MAIN)

    assert span_of(SAVE) == "checkpoint"
    assert span_of(COMPILE) == "compile"
    assert span_of(workers) == "epoch_start"
    assert span_of(LOADER) is None
    assert span_of(PLAIN) is None
    assert span_of(PLAIN, {(SCRIPT, 10)}) == "evaluation"


def test_a_rank_without_a_stack_is_still_if_it_does_nothing() -> None:
    missing = ThreadStack(pid=1, thread="", is_main=True, missing="not permitted")
    probe = ProcessProbe(pid=1, threads=(missing,), kernel=KernelState(state="S", syscall="futex"))

    summary = summarize_stack(probe, probe, dt_s=2.0, cwd=None)

    assert (summary.is_still, summary.waits_in, summary.where) == (True, "lock", None)


def test_a_rank_that_spins_in_a_collective_is_still() -> None:
    before = ProcessProbe(pid=1, threads=(REDUCE,), kernel=KernelState(state="R"))
    after = ProcessProbe(pid=1, threads=(REDUCE,), kernel=KernelState(state="R"), cpu_s=2.0)

    assert summarize_stack(after, before, dt_s=2.0, cwd=None, world_size=2).is_still


# -- who waits for whom


def make_ranks(*summary: tuple[str | None, str], steps: tuple[int, ...] = ()) -> list[StalledRank]:
    """Ranks that wait in something somewhere, after 100 steps if nothing else is said."""
    return [
        StalledRank(
            rank=rank,
            pid=100 + rank,
            num_steps=steps[rank] if steps else 100,
            waits_in=waits,
            where=where,
        )
        for rank, (waits, where) in enumerate(summary)
    ]


def test_those_outside_of_a_collective_are_waited_for() -> None:
    ranks = make_ranks(("collective", "a:1"), ("input", "a:2"), ("collective", "a:1"))

    assert find_culprits(ranks, gone=(), usual_s=0.1) == (1,)


def test_those_whose_process_ended_are_waited_for_first() -> None:
    ranks = make_ranks(("collective", "a:1"), ("input", "a:2"), ("collective", "a:1"))

    assert find_culprits(ranks, gone=(2,), usual_s=0.1) == (2,)


def test_one_in_another_collective_than_most_is_waited_for() -> None:
    ranks = make_ranks(("collective", "a:1"), ("collective", "a:9"), ("collective", "a:1"))

    assert find_culprits(ranks, gone=(), usual_s=0.1) == (1,)


def test_two_in_two_collectives_are_told_apart_by_their_steps_alone() -> None:
    ranks = [("collective", "a:1"), ("collective", "a:9")]

    assert find_culprits(make_ranks(*ranks), gone=(), usual_s=0.1) == ()
    behind = make_ranks(*ranks, steps=(100, 90))
    assert find_culprits(behind, gone=(), usual_s=0.1) == (1,)
    # Of 5 ms steps forty may not be on disk yet.
    assert find_culprits(behind, gone=(), usual_s=0.005) == ()


def test_one_rank_waits_for_nobody() -> None:
    assert find_culprits(make_ranks(("lock", "a:1")), gone=(), usual_s=0.1) == ()
