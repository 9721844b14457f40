"""Operators timed alone, of one size and another in turns."""

import os
import sys
import time

import pytest
import torch

from steptime.machine.child.operator_bench import MIN_ROUNDS, OperatorBench, measure
from steptime.machine.child.repeat import Clock
from steptime.machine.operator_turns import OperatorPair, time_operators

REQUEST = {"device": "cpu", "num_threads": 1, "limit_bytes": 1 << 26}
PRODUCT = {"m": 8, "n": 4, "inner": 4, "batch": 1, "turned": [False, True]}
CONVOLUTION = {
    "batch": 1,
    "space": [4, 4],
    "kernel": [3, 3],
    "stride": [1, 1],
    "padding": [1, 1],
    "dilation": [1, 1],
    "groups": 1,
    "transposed": False,
    "wanted": [],
    "channels_in": 2,
    "channels_out": 3,
}
ATTENTION = {
    "batch": 1,
    "heads": 2,
    "kv_heads": 1,
    "length": 4,
    "key_length": 4,
    "head_size": 8,
    "value_size": 8,
    "is_causal": False,
}
RECURRENT = {"steps": 6, "batch": 2, "channels_in": 3, "gates": 20, "hidden": 5}


def operator(kind, sizes, **more):
    return {"kind": kind, "which": "forward", "dtype": "float32", "num": 1, "sizes": sizes, **more}


@pytest.mark.parametrize(
    ("one", "shape"),
    [
        (operator("matmul", PRODUCT), (8, 4)),
        (operator("matmul", {**PRODUCT, "batch": 3, "turned": [True, False]}), (3, 8, 4)),
        (operator("convolution", CONVOLUTION), (1, 3, 4, 4)),
        (operator("attention", ATTENTION), (1, 2, 4, 8)),
        (operator("recurrent", RECURRENT), (3, 2, 5)),
    ],
)
def test_an_operator_of_each_kind_is_made_by_its_sizes(one, shape):
    call = OperatorBench(torch, REQUEST).make(one)

    assert tuple(call().shape) == shape


@pytest.mark.parametrize(
    "one",
    [
        operator("convolution", {**CONVOLUTION, "wanted": [True, True]}, which="backward"),
        operator("attention", ATTENTION, which="backward"),
        operator("recurrent", RECURRENT, which="backward"),
        operator("convolution", {**CONVOLUTION, "transposed": True}),
    ],
)
def test_backwards_and_turned_ones_can_be_repeated(one):
    call = OperatorBench(torch, REQUEST).make(one)

    call()
    assert call() is not None


def test_all_operators_of_a_pair_are_added_up_by_round():
    clock = Clock(until_s=time.perf_counter() + 60)
    pair = {"id": 3, "before": [operator("matmul", PRODUCT, num=5)]}
    pair["after"] = [operator("matmul", {**PRODUCT, "n": 8})]

    (line,) = measure(torch, {**REQUEST, "pairs": [pair]}, clock)

    assert (line["id"], line["clock"]) == (3, "cpu")
    assert len(line["rounds"]) >= MIN_ROUNDS
    assert all(before > 0 and after > 0 for before, after in line["rounds"])


def test_what_does_not_fit_or_is_refused_is_said():
    clock = Clock(until_s=time.perf_counter() + 60)
    huge = operator("matmul", {**PRODUCT, "m": 1 << 24})
    odd = operator("matmul", PRODUCT, dtype="float3")
    pairs = [{"id": at, "before": [one], "after": [one]} for at, one in enumerate((huge, odd))]

    lines = list(measure(torch, {**REQUEST, "pairs": pairs}, clock))

    assert [line["missing"] for line in lines] == ["not_supported"] * 2


def test_a_process_of_the_users_python_measures():
    small, large = operator("matmul", PRODUCT), operator("matmul", {**PRODUCT, "m": 512})
    pair = OperatorPair(before=[small], after=[large], work_ratio=64.0)

    (gain,) = time_operators(
        sys.executable, [pair], device="cpu", num_threads=1, budget_s=20, environment=os.environ
    )

    assert gain.missing is None
    assert gain.clock == "cpu"
    assert gain.gain == pytest.approx(64 / gain.time_ratio.estimate)
    assert gain.num_rounds >= MIN_ROUNDS


def test_an_interpreter_that_is_not_there_is_no_traceback():
    pair = OperatorPair(before=[], after=[], work_ratio=1.0)

    (gain,) = time_operators(
        "no-such-python", [pair], device="cpu", num_threads=1, budget_s=1, environment=os.environ
    )

    assert gain.missing == "not_started"
