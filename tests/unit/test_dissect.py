"""What a device's allocator, its driver and an error say of its memory; all of it made up."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from report_cases import dissected, make_anatomy, out_of_memory
from steptime.app.run.describe_run import describe_run
from steptime.guest.memory.device_state import largest_free_block, read_device
from steptime.guest.memory.dissect import read_failure
from steptime.measure.values.model.anatomy import Allocator, Death, Growth
from steptime.plan.memory_fit import wanted_bytes
from steptime.report.blocks.work.memory_blocks import memory_blocks
from told_blocks import told

GIB = 1 << 30

OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of "
    "which 1.25 GiB is free. Process 123 has 77.90 GiB memory in use. Of the allocated memory "
    "70.50 GiB is allocated by PyTorch, and 5.50 GiB is reserved by PyTorch but unallocated."
)


def made_up(**cuda: Any) -> Any:
    """Torch with a device that holds these."""
    blocks = [
        {"size": 7 * GIB, "state": "active_allocated"},
        {"size": 2 * GIB, "state": "inactive"},
        {"size": 1 * GIB, "state": "inactive"},
    ]
    stats = {
        "allocated_bytes": {"all": {"current": 7 * GIB, "peak": 9 * GIB}},
        "reserved_bytes": {"all": {"current": 10 * GIB, "peak": 12 * GIB}},
        "inactive_split_bytes": {"all": {"current": 3 * GIB}},
    }
    facts = {
        "is_initialized": lambda: True,
        "memory_stats_as_nested_dict": lambda: stats,
        "mem_get_info": lambda: (60 * GIB, 80 * GIB),
        "memory_snapshot": lambda: [{"blocks": blocks}],
        "host_memory_stats": lambda: {"allocated_bytes.current": 5},
    }
    return SimpleNamespace(cuda=SimpleNamespace(**(facts | cuda)))


def test_without_a_device_nothing_is_asked() -> None:
    assert read_device(made_up(is_initialized=lambda: False)) is None


def test_a_device_tells_what_is_given_out_held_and_free() -> None:
    found = read_device(made_up())

    assert found is not None
    assert Allocator(**found) == Allocator(
        allocated=7 * GIB,
        reserved=10 * GIB,
        peak_allocated=9 * GIB,
        peak_reserved=12 * GIB,
        split=3 * GIB,
        largest_free_block=2 * GIB,
        free=60 * GIB,
        total=80 * GIB,
        pinned=5,
    )


def test_what_a_release_of_torch_does_not_tell_is_none() -> None:
    torch = made_up(memory_stats_as_nested_dict=dict)
    del torch.cuda.host_memory_stats
    found = read_device(torch)

    assert found is not None
    assert found["allocated"] is found["pinned"] is None


def test_without_a_free_block_the_largest_is_of_no_bytes() -> None:
    assert largest_free_block(made_up(memory_snapshot=list)) == 0


def test_an_error_of_a_device_tells_what_it_held_when_it_failed() -> None:
    assert read_failure(OUT_OF_MEMORY) == {
        "free": round(1.25 * GIB),
        "allocated": round(70.5 * GIB),
        "reserved": 76 * GIB,
    }


def test_an_error_of_the_cpu_tells_nothing_of_a_device() -> None:
    assert read_failure("can't allocate memory: you tried to allocate 12 bytes.") == {}


def test_what_was_free_is_not_wanting() -> None:
    death = Death(by_part={}, allocator=Allocator(free=600_000_000))
    died = replace(out_of_memory(), memory=make_anatomy(death=death))

    assert died.errors[0].requested_bytes == 616_562_688
    assert wanted_bytes(died) == 16_562_688


def growth_line(growth: Growth) -> str:
    grown = replace(dissected(), memory=make_anatomy(growth=growth))
    return told(memory_blocks(describe_run(grown, None))).splitlines()[-1].strip()


def test_who_grows_is_told_by_type_and_shape() -> None:
    growth = Growth(
        num_updates=187,
        held_bytes=130 << 20,
        tensor_bytes=96 << 20,
        largest="fp32 [64, 2048]",
        largest_bytes=93 << 20,
        largest_num=187,
    )

    assert growth_line(growth) == (
        "130 MiB more was held 187 updates later; tensors that the script keeps grew by 96.0 MiB, "
        "most of it 187 of fp32 [64, 2048]"
    )


def test_growth_that_tensors_do_not_explain_is_not_put_on_them() -> None:
    growth = Growth(num_updates=187, held_bytes=130 << 20, tensor_bytes=5, largest="fp32 [1]")

    assert growth_line(growth).endswith("and it is not in tensors")
