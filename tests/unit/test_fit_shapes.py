"""`steptime plan`: words in, tables and documents out."""

import json
from dataclasses import replace

import pytest

from steptime.cli.main import main
from steptime.core.codec import from_json, to_json
from steptime.core.interval import Interval
from steptime.plan.values.shape_values import (
    DeviceSeen,
    KeptWidth,
    MeasuredGain,
    Product,
    ProductPlace,
    Proposal,
    SeenProducts,
    ShapeAdvice,
)
from steptime.report.blocks.fit.shapes_report import shapes_report
from steptime.report.html.paint_html import paint_page
from steptime.report.text.paint_text import paint
from told_blocks import unwrapped_page

PROPOSAL = Proposal(
    role="vocabulary",
    old=65,
    new=80,
    reason="alignment",
    unit=16,
    predicted_gain=1.07,
    predicted_time_ratio=1.15,
    share=0.011,
    more_parameters=3840,
    num_products=3,
    weights=("model.head.weight",),
    places=(ProductPlace(file="somewhere/train.py", line=87),),
)
ADVICE = ShapeAdvice(
    device=DeviceSeen(kind="cpu", capability="AVX512"),
    rule="vectors",
    seen=SeenProducts(updates=1, num_threads=1),
    proposals=(PROPOSAL,),
    kept=(KeptWidth(role="hidden", size=128, reason="aligned"),),
)


def text_of(advice):
    parts = shapes_report(advice, command=("python", "train.py")).parts
    blocks = [block for part in parts if part.only is None for block in part.blocks]
    return "\n".join(line.plain for line in paint(blocks, unwrapped_page()))


def page_of(advice, *words):
    return paint_page(shapes_report(advice, command=words))


def plan(capsys, *words):
    code = main(["plan", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


# -- sizes of a batch


def test_sizes_that_are_given_give_the_rest(capsys):
    code, out, _ = plan(capsys, "batch", "global=512", "micro=8", "dp=4")

    assert code == 0
    assert out.splitlines()[1].split() == ["8", "16", "4", "512", "128", "4"]


def test_a_rate_follows_with_its_source(capsys):
    words = ("batch", "global=512", "micro=8", "--rate", "optimizer=adamw", "from=256", "lr=3e-4")
    code, out, _ = plan(capsys, *words)
    out = " ".join(out.split())

    assert code == 0
    assert "by the square root" in out
    assert "0.0004243" in out
    assert "2205.10287" in out


def test_the_document_of_a_batch(capsys):
    code, out, _ = plan(capsys, "batch", "global=64", "devices=8", "tp=2", "zero=1", "--json")

    document = json.loads(out)
    assert (code, document["command"]) == (0, "plan batch")
    batch = document["data"]["batch"]
    assert batch["num_choices"] == 5
    assert batch["state_bytes_per_parameter"] == 9


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("batch", "global=100", "micro=8"), "96 or 104"),
        (("batch", "size=4"), "names no size"),
        (("batch", "micro=many"), "whole number"),
        (("batch", "micro=1", "micro=2"), "twice"),
        (("batch", "micro=1", "--rate", "optimizer=sgd"), "old global batch"),
        (("batch", "micro=1", "--rate", "optimizer=sgd", "from=x"), "numbers"),
        (("batch", "--rate", "optimizer=sgd", "from=8"), "SIZE=N"),
        (("shapes", "--measure"), "no command"),
        (("shapes", "python", "train.py"), "Write: steptime plan shapes -- python train.py"),
        (("batch", "micro=1", "--", "python", "train.py"), "Leave out"),
        (("shapes",), "no command"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(capsys, words, told):
    code, out, err = plan(capsys, *words)

    assert (code, out) == (2, "")
    assert told in err


def test_a_rule_that_forbids_is_named_in_the_document(capsys):
    code, out, _ = plan(capsys, "batch", "micro=1", "tp=4", "heads=6", "--json")

    assert code == 2
    assert json.loads(out)["errors"][0]["code"] == "batch_rule"


# -- shapes


def test_a_proposal_has_gain_price_and_line():
    text = text_of(ADVICE)

    row = next(line for line in text.splitlines() if line.startswith("vocabulary"))
    assert row.split()[1:3] == ["65", "80"]
    assert "1.07x" in row
    assert "+3,840" in row
    assert "train.py:87" in text
    assert "128 (hidden width): suits the device already" in text


def test_what_was_measured_stands_beside_what_was_predicted():
    gain = MeasuredGain(
        time_ratio=Interval(estimate=1.13, low=1.09, high=1.17, n=7),
        gain=1.09,
        num_rounds=7,
        clock="cpu",
    )
    text = text_of(replace(ADVICE, proposals=(replace(PROPOSAL, measured=gain),)))

    assert "1.09x" in text
    assert "1.13x [1.09, 1.17], 7 rounds" in text


@pytest.mark.parametrize(("missing", "told"), [("out_of_time", "no time"), ("child_ended", "none")])
def test_what_was_not_measured_says_so(missing, told):
    one = replace(PROPOSAL, measured=MeasuredGain(missing=missing))

    assert told in text_of(replace(ADVICE, proposals=(one,)))


def test_an_unknown_device_gets_no_proposals_and_a_reason():
    text = text_of(replace(ADVICE, rule=None, proposals=()))

    assert "nothing is known of the device" in text


def test_nothing_better_is_an_answer():
    assert "every width suits the device" in text_of(replace(ADVICE, proposals=()))


def test_heads_and_gated_widths_are_explained():
    heads = replace(
        PROPOSAL,
        role="heads",
        old=8,
        new=9,
        reason="head_size",
        facts={"head_size": 72.0, "new_head_size": 64.0},
    )
    gated = replace(PROPOSAL, role="gated", facts={"coefficient": 2.667, "new_coefficient": 2.6875})
    text = text_of(replace(ADVICE, proposals=(heads, gated)))

    assert "heads of 64 instead of 72" in text
    assert "2.667 to 2.688 times the hidden width" in text


def test_an_advice_survives_json():
    assert from_json(ShapeAdvice, json.loads(json.dumps(to_json(ADVICE)))) == ADVICE


# -- the page of widths


def test_the_page_names_gain_price_and_place():
    ratio = Interval(estimate=1.0, low=0.8, high=1.25, n=7)
    gain = MeasuredGain(time_ratio=ratio, gain=1.2, num_rounds=7, clock="cpu")
    products = (
        Product(
            kind="matmul",
            which="forward",
            module="model.head",
            module_kind="Linear",
            place=None,
            weight="model.head.weight",
            dtype="float32",
            device="cpu",
            sizes={"m": 64, "n": 65, "inner": 128, "batch": 1},
            num=2,
            time_s=0.002,
        ),
    )
    seen = replace(ADVICE.seen, products=products, num_left_out=3)
    advice = replace(ADVICE, seen=seen, proposals=(replace(PROPOSAL, measured=gain),))

    page = page_of(advice, "python", "<train>.py")

    assert ">&#x27;&lt;train&gt;.py&#x27;<" in page
    assert "One width of which another size suits the device better" in page
    assert '<td class="number">1.20x</td>' in page
    assert "time 1.00x [0.80, 1.25], 7 rounds, cpu time" in page
    assert "+3,840" in page
    assert "train.py:87" in page
    assert "rows that no token uses" in page
    assert "64 x 128 x 65" in page
    assert "3 more, shorter ones" in page


def test_the_page_of_an_unknown_device_proposes_nothing():
    advice = replace(ADVICE, device=DeviceSeen(kind="xpu"), rule=None, proposals=())

    page = page_of(advice, "python", "train.py")

    assert "nothing is known of the device `xpu`" in page
