"""The part of the page on steps whose inputs differ in size."""

from __future__ import annotations

from dataclasses import replace

from steptime.measure.values.model.work import Count, SizeGroup, WorkBasis
from steptime.report.blocks.work.work_blocks import size_table
from steptime.report.text.paint_text import told

COUNT = Count(forward=10, backward=20, recomputed=0, macs=15, by_dtype={"fp32": 30})
BASIS = WorkBasis(how="each", num_counted=2, num_steps=40, low_flops=10, high_flops=60)
GROUPS = (
    SizeGroup(
        num_steps=30,
        low_rows=8,
        high_rows=8,
        low_elements=80,
        high_elements=800,
        mean_flops=2_000,
    ),
    SizeGroup(
        num_steps=10,
        low_rows=9,
        high_rows=16,
        low_elements=900,
        high_elements=1_600,
        mean_flops=6_000,
    ),
)


def test_each_group_of_sizes_has_a_row() -> None:
    made = told(size_table(replace(COUNT, basis=replace(BASIS, sizes=GROUPS))))

    for cell in ("80 to 800", "9 to 16", "75.0 %", "25.0 %", "6.00 kFLOP", "50.0 %"):
        assert cell in made


def test_steps_of_one_size_have_no_table() -> None:
    assert size_table(None) == []
    assert size_table(COUNT) == []
    assert size_table(replace(COUNT, basis=BASIS)) == []
