"""What is made of the lines that processes wrote about their memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from steptime.core.codec import to_json
from steptime.measure.memory.memory_anatomy import MemoryTold, find_anatomy, read_memory
from steptime.measure.values.model.anatomy import Allocator, Instant


def seen(**sizes: int) -> dict[str, Any]:
    """Parts as the guest writes them."""
    return {
        name: {"bytes": size, "num": 1, "by_dtype": {"fp32": size}, "by_device": {"cpu": size}}
        for name, size in sizes.items()
    }


def line(moment: str = "update", *, pid: int = 1, n: int = 1, **changes: Any) -> MemoryTold:
    parts = seen(**changes.pop("parts", {"weights": 40}))
    facts: dict[str, Any] = {"pid": pid, "moment": moment, "n": n, "parts": parts}
    return read_memory({"num_parameters": 10, "num_trainable": 10} | facts | changes)


def rank(number: int, pid: int) -> Any:
    samples = tuple(SimpleNamespace(rss=size, rss_peak=None) for size in (100, 900, 300))
    head = SimpleNamespace(rank=number, pid=pid)
    return SimpleNamespace(head=head, signals=SimpleNamespace(memory=samples))


def find(*lines: MemoryTold, ranks: Any = (), worker_bytes: int | None = None) -> Any:
    return find_anatomy(lines, ranks, worker_bytes=worker_bytes)


def test_nothing_is_known_of_a_run_that_said_nothing() -> None:
    assert find() is None


def test_the_last_line_of_a_process_counts() -> None:
    found = find(line("call", n=0), line("update", parts={"weights": 40, "gradients": 20}))

    assert found.moment == "update"
    assert found.part("gradients").bytes == 20


def test_before_the_first_update_gradients_and_states_are_not_zero_but_unknown() -> None:
    found = find(line("backward", n=0, parts={"weights": 40, "gradients": 0, "activations": 7}))

    assert found.part("gradients").bytes is None
    assert found.part("gradients").missing == "no_update_seen"
    assert found.part("activations").bytes == 7


def test_without_a_backward_call_activations_are_unknown() -> None:
    found = find(line("call", n=0))

    assert found.part("activations").missing == "no_backward_seen"
    assert found.part("logits").missing == "no_backward_seen"


def test_of_several_ranks_the_one_that_holds_most_is_told() -> None:
    lines = (line(pid=1, parts={"weights": 40}), line(pid=2, parts={"weights": 50}))

    assert find(*lines, ranks=(rank(0, 1), rank(1, 2))).rank == 1


def test_processes_that_did_not_step_count_only_where_none_did() -> None:
    lines = (line(pid=1), line(pid=7, parts={"weights": 4000}))

    assert find(*lines, ranks=(rank(0, 1),)).part("weights").bytes == 40
    assert find(*lines).part("weights").bytes == 4000


def test_resident_memory_is_the_most_that_was_seen() -> None:
    found = find(line(), ranks=(rank(0, 1),), worker_bytes=55)

    assert (found.resident_bytes, found.worker_bytes) == (900, 55)


def test_a_rank_that_died_goes_first_and_keeps_what_it_knew_before() -> None:
    died = {"parts": seen(weights=40, others=5, gradients=0)}
    lines = (
        line(pid=1, parts={"weights": 40, "activations": 9}),
        line("death", pid=1, death=died),
        line(pid=2, parts={"weights": 4000}),
    )
    found = find(*lines, ranks=(rank(0, 1), rank(1, 2)))

    assert found.rank == 0
    assert found.moment == "update"
    assert found.part("activations").bytes == 9
    assert found.death.by_part == {"weights": 40, "others": 5}


def test_on_a_cpu_there_is_no_context_and_no_fragmentation() -> None:
    found = find(line())

    assert found.part("context").missing == "not_applicable_on_cpu"
    assert found.part("fragmentation").missing == "not_applicable_on_cpu"


def test_on_a_device_both_are_what_the_allocator_leaves_over() -> None:
    device = Allocator(allocated=60, reserved=100, free=300, total=1000)
    found = find(line(device=to_json(device)))

    assert found.part("fragmentation").bytes == 40
    assert found.part("context").bytes == 600


def test_a_device_that_does_not_tell_leaves_them_unknown() -> None:
    found = find(line(device={"allocated": 60}))

    assert found.part("fragmentation").bytes is None
    assert found.part("context").bytes is None


def test_buckets_of_ddp_are_communication() -> None:
    assert find(line(buckets_bytes=80)).part("communication").bytes == 80
    assert find(line()).part("communication").missing == "no_ddp_seen"


def test_temporaries_are_those_at_the_peak_of_the_followed_step() -> None:
    peak = Instant(at_fraction=0.5, phase="backward", by_part={"weights": 40, "temporaries": 6})
    step = {"instants": [to_json(peak)], "peak": to_json(peak), "module": "GPT.head"}
    found = find(line(step=step))

    assert found.part("temporaries").bytes == 6
    assert found.part("inputs").bytes == 0
    assert found.timeline.module == "GPT.head"


def test_a_step_that_was_not_followed_says_why() -> None:
    found = find(line(step_missing="compiled"))

    assert found.timeline is None
    assert found.timeline_missing == "compiled"
    assert found.part("temporaries").missing == "compiled"
