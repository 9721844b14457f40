"""The part of the page on who holds the memory."""

from __future__ import annotations

import re
from dataclasses import replace

from report_cases import dissected, make_anatomy, out_of_memory
from steptime.app.run.describe_run import describe_run
from steptime.measure.values.model.anatomy import Instant, MemoryTimeline
from steptime.report.blocks.work.memory_blocks import memory_tables, timeline_plot
from steptime.report.html.paint_html import paint


def part_of(anatomy) -> str:
    document = describe_run(replace(dissected(), memory=anatomy), None)
    return paint([*timeline_plot(anatomy), *memory_tables(document)]).text


def test_the_step_is_drawn_with_a_band_a_part_and_its_peak() -> None:
    text = part_of(dissected().memory)

    assert text.count("stroke:none") == 5
    assert "5.56 GiB at its peak, in backward of GPT.lm_head" in text
    assert "forward from 0.0 %, backward from 50.0 %" in text


def test_bands_fill_the_height_at_the_peak() -> None:
    peak = Instant(at_fraction=0.0, phase="forward", by_part={"weights": 60, "temporaries": 40})
    text = part_of(make_anatomy(timeline=MemoryTimeline(instants=(peak,), peak=peak)))

    areas = re.findall(r'd="M([^"]+)Z"', text)
    assert areas == [
        "0.0 120.0L1000.0 120.0L1000.0 300.0L0.0 300.0",
        "0.0 0.0L1000.0 0.0L1000.0 120.0L0.0 120.0",
    ]


def test_what_was_not_measured_has_its_reason() -> None:
    assert "not measured: no update was done" in part_of(out_of_memory().memory)


def test_without_a_followed_step_the_parts_stand_alone() -> None:
    text = part_of(replace(make_anatomy(), timeline=None))

    assert "<svg" not in text
    assert "optimizer states" in text
