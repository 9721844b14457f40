"""Which bracket belongs to bad numbers, which samples to look at, and how the report says it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from steptime.core.codec import decode, encode
from steptime.measure.health.layer_curves import MAX_POINTS
from steptime.measure.values.model.health import Health
from steptime.measure.values.model.layer_health import Bracket, LayerHealth
from steptime.report.blocks.work.layer_blocks import (
    describe_bracket,
    describe_layers,
    describe_probe,
    describe_samples,
    layer_table,
)
from steptime.report.html.paint_html import paint
from unit.builders import Line, make_measurement, make_update, measure_lines

SCRIPT = "/home/me/project/train.py"


def module(name: str, kind: str = "Linear") -> dict[str, str]:
    return {"name": name, "kind": kind, "model": "Net"}


def side(at: str, **fields: Any) -> dict[str, Any]:
    usual = {"at": at, "module": module("head"), "after": module("body"), "is_nan": True}
    return {**usual, "samples": [5, 9, 2], "samples_missing": None, **fields}


def bracket_line(n: int, **fields: Any) -> Line:
    return {"k": "br", "n": n, "forward": None, "backward": None, "num_weights": 4, **fields}


COST: Line = {"k": "hc", "since": 1, "updates": 10, "tensors": 60, "ns": 500_000, "missing": {}}


def probed(*lines: Line, losses: tuple[Any, ...] = (), cost: Line = COST) -> LayerHealth | None:
    updates = [make_update(number) for number in range(10)]
    rows = [[n, 0, 0, value, None] for n, value in enumerate(losses, start=1)]
    health = measure_lines(*updates, {"k": "v", "rows": rows}, cost, *lines).health
    return None if health is None else health.layers


def bracket_of(*lines: Line, losses: tuple[Any, ...] = (1.0, 1.0, "nan", "nan")) -> Bracket:
    layers = probed(*lines, losses=losses)
    assert layers is not None
    assert layers.bracket is not None
    return layers.bracket


def test_the_bracket_is_that_of_the_first_bad_update() -> None:
    bracket = bracket_of(
        bracket_line(2, backward=side("gradient"), skipped=1),
        bracket_line(3, forward=side("input")),
    )
    assert bracket.update == 3
    assert bracket.forward is not None
    assert bracket.forward.at == "input"


def test_an_update_that_broke_the_weights_shows_in_the_next_one() -> None:
    place = {"k": "nf", "n": 3, "value": "loss", "is_nan": True}
    weights = {"num": 4, "num_bad": 1, "num_broken": 1, "num_states": 8, "num_bad_states": 1}
    broken = side("weight", weights=["bias"], samples_before=[7, 8])
    bracket = bracket_of({**place, "weights": weights}, bracket_line(3, forward=broken))

    assert (bracket.update, bracket.bad_samples) == (3, (7, 8))
    assert not bracket.samples_are_rows


@pytest.mark.parametrize(
    ("fields", "samples", "are_rows", "missing"),
    [
        ({"rows": [1], "num_rows": 3}, (9,), True, None),
        ({"rows": [1], "num_rows": 6}, (5, 9, 2), False, None),
        ({"rows": None}, (5, 9, 2), False, None),
        ({"samples": None, "samples_missing": "no_indices"}, None, False, "no_indices"),
    ],
)
def test_bad_rows_are_samples_where_each_row_is_one(
    fields: dict[str, Any], samples: Any, missing: str | None, *, are_rows: bool
) -> None:
    bracket = bracket_of(bracket_line(3, forward=side("input", **fields)))
    assert (bracket.bad_samples, bracket.samples_are_rows) == (samples, are_rows)
    assert bracket.samples_missing == missing


def test_nobody_asked_or_nothing_was_bad() -> None:
    updates = [make_update(number) for number in range(10)]
    health = measure_lines(*updates, {"k": "v", "rows": [[1, 0, 0, 1.0, None]]}).health
    assert health is not None
    assert health.layers is None

    layers = probed(bracket_line(2, backward=side("gradient"), skipped=1), losses=(1.0, 1.0))
    assert layers is not None
    assert (layers.bracket, layers.num_brackets) == (None, 1)
    assert layers.s_per_update == pytest.approx(50e-6)
    assert layers.tensors_per_update == 6


def test_a_bracket_that_is_damaged_costs_that_line_only() -> None:
    layers = probed(bracket_line(3, forward={"at": 7}), losses=(1.0, 1.0, "nan"))
    assert layers is not None
    assert layers.bracket is None


SAID = {
    "argument": "the batch itself is NaN: it was given to head (Linear)",
    "input": "the output of body (Linear) is finite, the input of head (Linear) is NaN, called at "
    "train.py:7: look between them",
    "output": "the output of head (Linear) is NaN, called at train.py:7, its input and weights are "
    "finite (input up to 3, weights up to 1.5e+38); before it, the output of body (Linear) is "
    "finite",
    "weight": "head.bias is NaN when head (Linear) is called at train.py:7",
    "loss": "the output of every module is finite (the last: body (Linear)), the loss is not: look "
    "between them",
}


@pytest.mark.parametrize("at", SAID)
def test_the_report_says_where_to_look(at: str) -> None:
    fields: dict[str, Any] = {"file": f"{SCRIPT[:-8]}train.py", "line": 7}
    if at == "argument":
        fields = {"after": None}
    elif at == "weight":
        fields |= {"weights": ["bias"]}
    elif at == "output":
        fields |= {"largest_input": 3.0, "largest_weight": 1.5e38}
    elif at == "loss":
        fields = {"module": None}
    text = describe_bracket(bracket_of(bracket_line(3, forward=side(at, **fields))))

    said = SAID[at].replace("train.py:7", "/home/me/project/train.py:7")
    assert text.replace("at train.py:7", "at /home/me/project/train.py:7") == f"update 3: {said}."


def test_the_report_says_which_gradients_and_which_samples() -> None:
    bracket = bracket_of(
        bracket_line(
            3,
            backward=side("gradient", rows=[0, 2], num_bad_rows=2, num_rows=3),
            num_bad_gradients=1,
            bad_gradients=["body.weight"],
        )
    )
    assert describe_bracket(bracket) == (
        "update 3: in the backward, the gradient of the output of body (Linear) is finite, that of "
        "head (Linear) is NaN: look between them. Of 4 gradients, 1 is bad after the update: "
        "body.weight."
    )
    assert describe_samples(bracket) == (
        "2 of 3 in the batch (rows 0, 2), indices 5, 2 of the data set"
    )


LAYERS: Line = {
    "k": "lw",
    "rows": [[0, "words", "Embedding", "Net", 80, 0], [1, "body", "Linear", "Net", 30, 5]],
}


def norms_line(n: int, *rows: list[Any]) -> Line:
    return {"k": "ln", "n": n, "rows": list(rows)}


def test_curves_are_thin_and_hold_what_was_sampled() -> None:
    lines = [
        norms_line(n, [0, None, 2.0, 0.0, 0], [1, float(n), 4.0, 0.1, n % 2]) for n in range(1, 201)
    ]
    layers = probed(LAYERS, *lines, losses=(1.0,))
    assert layers is not None
    words, body = layers.curves
    assert (words.gradient_norm, words.update_ratio, words.num_dead) == (None, 0.0, None)
    assert (body.num_samples, body.gradient_norm, body.weight_norm) == (200, 100.5, 4.0)
    assert (body.update_ratio, body.num_units, body.num_dead) == (0.025, 5, 0)
    assert (len(body.updates), body.updates[0], body.updates[-1]) == (MAX_POINTS, 1, 200)
    assert body.gradient_norms == tuple(float(n) for n in body.updates)


def test_norms_that_are_not_finite_are_gaps() -> None:
    lines = [norms_line(1, [1, "inf", 0.0, 0.0, 0]), norms_line(17, [1, 2.0, "nan", "nan", 0])]
    layers = probed(LAYERS, *lines, losses=(1.0,))
    assert layers is not None
    (body,) = layers.curves
    assert (body.gradient_norm, body.weight_norm, body.update_ratio) == (2.0, None, None)
    assert body.gradient_norms == (None, 2.0)
    assert body.weight_norms == (0.0, None)
    assert decode(LayerHealth, encode(layers)) == layers


def test_the_report_says_how_far_layers_move_and_which_units_are_dead() -> None:
    lines = [norms_line(1, [0, 0.1, 2.0, 0.0002, 0], [1, 0.1, 4.0, 0.04, 3])]
    layers = probed(LAYERS, *lines, losses=(1.0,))
    assert layers is not None
    assert describe_layers(layers) == (
        "an update moves a layer by 1.0 % of its weights in the median, least <0.1 % (words), most "
        "1.0 % (body); units without any gradient: 3 of 5 in body"
    )
    made = layer_table(replace(make_measurement(), health=Health(num_seen=1, layers=layers)))
    page = paint(made).text
    assert "60.0 % of 5" in page


def test_a_curve_is_drawn_with_gaps() -> None:
    lines = [norms_line(n, [1, "nan" if n == 3 else float(n), 4.0, 0.1, 0]) for n in range(1, 6)]
    layers = probed(LAYERS, *lines, losses=(1.0,))
    made = layer_table(replace(make_measurement(), health=Health(num_seen=1, layers=layers)))
    page = paint(made).text
    assert page.count("<polyline") == 4  # the gradient in two pieces, weights, ratio


def test_the_report_says_what_the_probe_cost_and_did_not_read() -> None:
    cost = {**COST, "missing": {"on_device": 4}}
    layers = probed(losses=(1.0,), cost=cost)
    assert layers is not None
    assert describe_probe(layers, 0.001) == (
        "10 updates from update 1 on, 6 outputs and gradients in each; 50.0 µs of an update "
        "(5.0 % of a step). Not read: tensors on another device"
    )
