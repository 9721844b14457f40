"""The peak of one of several devices, from the peak of a training on one."""

from __future__ import annotations

import pytest

from steptime.plan.per_device import CUT, peaks_per_device

PARTS = {"weights": 400, "gradients": 400, "optimizer": 800, "activations": 1600, "context": 100}


def peaks(num_devices: int, *, num_blocks: int | None = None) -> dict[str, int]:
    found = peaks_per_device(PARTS, num_devices, num_blocks=num_blocks)
    return {one.sharing: one.bytes for one in found}


def test_one_device_holds_everything():
    assert set(peaks(1).values()) == {sum(PARTS.values())}


def test_each_way_cuts_what_it_shares_and_the_batch():
    assert peaks(4, num_blocks=10) == {
        "ddp": 400 + 400 + 800 + 400 + 100 + 400,
        "zero1": 400 + 400 + 200 + 400 + 100 + 400,
        "zero2": 400 + 100 + 200 + 400 + 100 + 30,
        "fsdp": 100 + 100 + 200 + 400 + 100 + 30 + 60,
    }


def test_a_model_of_one_block_is_gathered_whole():
    assert peaks(4)["fsdp"] == 100 + 100 + 200 + 400 + 100 + 300 + 300


def test_more_devices_never_hold_more():
    for name in CUT:
        sizes = [peaks(number, num_blocks=12)[name] for number in (2, 4, 8, 64)]
        assert sizes == sorted(sizes, reverse=True)


def test_there_is_at_least_one_device():
    with pytest.raises(ValueError, match="num_devices must be 1 or more, got 0"):
        peaks_per_device(PARTS, 0)
