"""How attention is computed: what a counted update sees of it, and what is said about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from steptime.diagnose.ailments.compute.attention import (
    MIN_LENGTH,
    find_slow_backend,
    find_unused_kernel,
    find_written,
)
from steptime.diagnose.values.finding import Finding
from steptime.guest.count.counting_mode import make_mode
from steptime.guest.count.operators.attention_calls import AttentionCalls
from steptime.measure.values.model.attention_call import AttentionCall
from steptime.report.words.run.run_words import describe_finding
from unit.builders import make_measurement, make_update, measure_lines

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

ROWS, HEADS, LENGTH, WIDTH = 2, 2, 8, 4
SHAPE = (ROWS, HEADS, LENGTH, WIDTH)


def look(act: Callable[..., Any], *args: Any) -> list[list[Any]]:
    """Way, backend, reasons and number of the calls of attention in a function."""
    failures: list[str] = []
    calls = AttentionCalls(torch, failures.append)
    mode = make_mode(torch, lambda f, a, k, r, ns: calls.see_operator(f, a, r), lambda: 0)
    functions = [F.scaled_dot_product_attention, F.multi_head_attention_forward]
    calls.open()
    try:
        with mode:
            act(*args)
    finally:
        calls.close()
    assert [F.scaled_dot_product_attention, F.multi_head_attention_forward] == functions
    assert failures == []
    assert all(key[0] == __file__ for key in calls.rows)
    return [[*key[2:5], row[0]] for key, row in calls.rows.items()]


def heads() -> list[Any]:
    return [torch.randn(SHAPE, requires_grad=True) for _ in range(3)]


MASK = torch.ones(LENGTH, LENGTH).tril().log()
CASES: list[tuple[dict[str, Any], str, tuple[str, ...]]] = [
    ({}, "flash", ()),
    ({"is_causal": True}, "flash", ()),
    ({"attn_mask": MASK}, "flash", ()),
    ({"dropout_p": 0.1}, "math", ("dropout",)),
    ({"attn_mask": nn.Parameter(torch.zeros(LENGTH, LENGTH))}, "math", ("mask_gradient",)),
    (
        {"attn_mask": nn.Parameter(torch.zeros(LENGTH, LENGTH)), "dropout_p": 0.1},
        "math",
        ("mask_gradient", "dropout"),
    ),
]


@pytest.mark.parametrize(("options", "backend", "reasons"), CASES)
def test_torchs_own_choice_is_told_and_what_kept_it_from_a_faster_one(
    options: dict[str, Any], backend: str, reasons: tuple[str, ...]
) -> None:
    def act() -> None:
        for _ in range(3):
            F.scaled_dot_product_attention(*heads(), **options)

    assert look(act) == [["function", backend, reasons, 3]]


def test_inputs_that_are_laid_out_the_other_way_are_the_reason() -> None:
    q, k, v = (torch.randn(ROWS, HEADS, WIDTH, LENGTH).mT for _ in range(3))

    assert look(attend_to, q, k, v) == [["function", "math", ("layout",), 1]]


def test_a_kernel_that_is_switched_off_is_another_reason() -> None:
    def act() -> None:
        with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
            F.scaled_dot_product_attention(*heads())

    assert look(act) == [["function", "math", ("no_single_reason",), 1]]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, [["layer", "none", ("need_weights",), 1]]),
        ({"need_weights": False}, [["function", "flash", (), 1]]),
    ],
)
def test_a_layer_of_torchs_computes_weights_unless_it_is_told_not_to(
    options: dict[str, Any], found: list[list[Any]]
) -> None:
    layer, x = nn.MultiheadAttention(WIDTH, HEADS), torch.randn(LENGTH, ROWS, WIDTH)

    assert look(lambda: layer(x, x, x, **options)) == found


def test_attention_in_single_operators_is_told_and_what_looks_like_it_is_not() -> None:
    q, k, v = heads()

    def written() -> None:
        F.softmax((q @ k.mT / 2).masked_fill(MASK < 0, -1e9), -1) @ v

    def dropped() -> None:
        F.dropout(F.softmax(q @ k.mT, -1), 0.5) @ v

    def classified() -> None:
        F.softmax(q.flatten(0, 2) @ k.flatten(0, 2).mT, -1) @ v.flatten(0, 2)

    assert look(written) == [["written", "none", (), 1]]
    assert look(dropped) == look(classified) == []


def test_an_error_of_the_scripts_passes_and_leaves_torch_as_it_was() -> None:
    attend = F.scaled_dot_product_attention
    with pytest.raises(RuntimeError) as caught:
        look(attend_to, *heads()[:2], torch.randn(1, 2, 3, 5))

    assert F.scaled_dot_product_attention is attend
    assert "wrapper" not in [entry.name for entry in caught.traceback]


def attend_to(*args: Any) -> Any:
    return F.scaled_dot_product_attention(*args)


# -- from the line to the words


def line(**changes: Any) -> dict[str, Any]:
    call = {
        "file": "/home/me/project/train.py",
        "line": 31,
        "way": "function",
        "backend": "math",
        "reasons": ["dropout"],
        "dtype": "float32",
        "num": 4,
        "length": 256,
    }
    return {"k": "at", "n": 13, "calls": [call | changes]}


def test_a_line_becomes_a_value_and_without_one_nothing_is_known() -> None:
    updates = [make_update(n) for n in range(20)]

    assert measure_lines(*updates).attention is None
    assert measure_lines(*updates, {"k": "at", "n": 13, "calls": []}).attention == ()
    assert measure_lines(*updates, line()).attention == (
        AttentionCall(
            where="train.py:31",
            way="function",
            backend="math",
            reasons=("dropout",),
            dtype="float32",
            num=4,
            length=256,
        ),
    )


def call(way: str = "function", **changes: Any) -> AttentionCall:
    values: dict[str, Any] = {"backend": "none", "dtype": "float32", "num": 4, "length": 256}
    return AttentionCall(**{"where": "train.py:31", "way": way, **values, **changes})


RULES: list[tuple[Callable[..., Finding | None], AttentionCall, bool]] = [
    (find_slow_backend, call(backend="math", reasons=("mask", "dropout")), True),
    (find_slow_backend, call(backend="efficient", reasons=("dtype",)), True),
    (find_slow_backend, call(backend="flash"), False),
    (find_slow_backend, call("written"), False),
    (find_unused_kernel, call("layer", reasons=("need_weights",)), True),
    (find_unused_kernel, call("layer", length=MIN_LENGTH.value - 1), False),
    (find_written, call("written"), True),
    (find_written, call("written", length=64), False),
]


@pytest.mark.parametrize(("rule", "seen", "is_found"), RULES)
def test_long_rows_without_the_fastest_kernel_are_a_finding(
    rule: Callable[..., Finding | None], seen: AttentionCall, *, is_found: bool
) -> None:
    found = rule(make_measurement(attention=(seen,)))

    assert (found is not None) == is_found
    assert found is None or (found.kind, found.where) == (None, "train.py:31")
    assert rule(make_measurement(attention=None)) is None


def test_the_finding_says_the_backend_and_the_reason_in_words() -> None:
    seen = call(backend="math", reasons=("dropout",), num=12)
    found = find_slow_backend(make_measurement(attention=(seen,)))

    assert found is not None
    assert "by its math backend in 12 calls of a step" in describe_finding(found, None)
    assert "because of dropout of weights." in describe_finding(found, None)
