"""The waterfall and the roofline on the page: bars that stand behind each other, and a plot."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from page_cases import gpt
from steptime.diagnose.values.reach_values import Exceeded, Picture, Roofline, Waterfall
from steptime.diagnose.waterfall.step_waterfall import make_picture
from steptime.machine.ceiling_state import judge
from steptime.report.blocks.colors import COLORS
from steptime.report.blocks.run.run_report import PageFacts
from steptime.report.blocks.work.waterfall_blocks import (
    PARTS,
    roofline_blocks,
    roofline_plot,
    waterfall_blocks,
)
from steptime.report.html.paint_html import paint
from steptime.report.html.run_page import render_page
from unit.test_waterfall import elementwise, make_ceilings, make_count, make_group, make_run


def make_page_picture() -> Picture:
    count = make_count(make_group(time_s=0.12), elementwise(time_s=0.06, gigabytes=0.5))
    run = make_run(count, {"input_wait": 0.02, "forward": 0.2, "optimizer": 0.03})
    return make_picture(run, make_ceilings())


def with_picture(facts: PageFacts, picture: Picture) -> PageFacts:
    document = replace(facts.document, roofline=picture.roofline, waterfall=picture.waterfall)
    return replace(facts, document=document)


def text_of(picture: Picture) -> str:
    return paint(waterfall_blocks(picture.waterfall, picture.roofline.roofs)).text


def test_each_bar_begins_where_the_one_before_ends_and_tells_its_arithmetic() -> None:
    text = text_of(make_page_picture())
    bars = re.findall(r"left:([\d.]+)%;width:([\d.]+)%", text)
    ends = [float(left) + float(width) for left, width in bars]

    # Nothing is unexplained, so its row has no bar.
    assert len(bars) == text.count('class="step-bar"') - 1 == 8
    assert [float(left) for left, _ in bars[1:]] == pytest.approx(ends[:-1], abs=0.02)
    assert ends[-1] == pytest.approx(100, abs=0.02)
    assert "work ÷ ceiling: work 10.0 GFLOP, ceiling bf16 200 GFLOPS" in text


def test_every_part_has_a_colour() -> None:
    assert set(PARTS) <= set(COLORS)


def test_without_ceilings_the_page_says_how_to_get_them_and_without_a_count_nothing() -> None:
    empty = Picture(roofline=Roofline(), waterfall=Waterfall(missing="no_ceilings"))
    assert "<pre>steptime machine</pre>" in text_of(empty)
    compiled = replace(empty, waterfall=Waterfall(missing="compiled"))
    assert "not drawn: the script compiles" in text_of(compiled)
    assert "steptime machine" not in text_of(compiled)


def test_what_speaks_against_the_picture_stands_below_it() -> None:
    picture = make_page_picture()
    doubtful = replace(
        picture.waterfall,
        is_conclusive=False,
        lacking=("ceiling_fp64",),
        exceeded=(Exceeded(name="matmul", roof="compute", ratio=1.5, fraction=0.6),),
    )
    text = text_of(replace(picture, waterfall=doubtful))
    assert "matmul ran at 1.50x the compute roof" in text
    assert "Lacking: a measured ceiling of fp64." in text


def provisional() -> Picture:
    found = make_ceilings()
    doubted = [
        replace(one, others_cores=1.0) if one.variant == "memory" else one for one in found.ceilings
    ]
    count = make_count(make_group(time_s=0.12), elementwise(time_s=0.06, gigabytes=0.5))
    return make_picture(
        make_run(count, {"forward": 0.2}), judge(replace(found, ceilings=tuple(doubted)))
    )


def test_provisional_roofs_are_said_and_drawn_dashed() -> None:
    picture = provisional()
    text = text_of(picture)
    assert "provisional: memory (measured while other programs ran)" in text
    assert "INCONCLUSIVE: the roofs behind it are provisional" in text
    roofline = paint(roofline_blocks(picture.roofline)).text
    assert "provisional: memory (measured while other programs ran)" in roofline

    (plot,) = roofline_plot(picture.roofline)
    assert [curve.name for curve in plot.curves if curve.is_dashed] == [
        "memory 10.0 GB/s (provisional)"
    ]


def test_each_part_says_what_removing_it_gives() -> None:
    assert "removed, the step would become shorter by 27.0 ms to 33.0 ms" in text_of(
        make_page_picture()
    )


def test_the_page_has_both_sections_and_the_plot() -> None:
    page = render_page(with_picture(gpt(), make_page_picture()))
    assert "<h2>Where did my MFU go</h2>" in page
    assert "<h2>Operators under the roofs</h2>" in page
    assert "bf16 200 GFLOPS" in page
    assert 'aria-label="Roofline"' in page


def test_the_plot_has_a_mark_for_each_class_with_arithmetic_and_a_line_for_each_roof() -> None:
    picture = make_page_picture()
    (plot,) = roofline_plot(picture.roofline)
    names = [curve.name for curve in plot.curves]
    assert names == ["memory 10.0 GB/s", "bf16 200 GFLOPS", "fp32 100 GFLOPS", "matmul"]
    (tip,) = plot.curves[-1].tips
    assert tip.startswith("matmul: ")
    assert "less per step at the roof" in tip
    # Elements that were not counted as FLOP have no place on a logarithmic axis.
    assert plot.note == "Without a place, for they compute nothing: elementwise."
    memory, peak = plot.curves[:2]
    assert memory.points[-1] == peak.points[0]  # they meet at the ridge
    assert roofline_plot(replace(picture.roofline, roofs=None)) == []
