"""Makes the part of a report that says whether probabilities come true.

In: the `Calibration` of each arm. Out: a section with the error beside chance, the bins, and what
would repair them; on a page, the reliability diagram with the band of a calibrated model.
"""

from __future__ import annotations

from collections.abc import Sequence

from steptime.core.printable import printable
from steptime.core.units import format_count
from steptime.report.blocks.phrasing import labeled
from steptime.report.blocks.values import (
    Blank,
    Block,
    Cell,
    Curve,
    LinePlot,
    Reach,
    Section,
    TableBlock,
    Ticks,
)
from steptime.report.words.verify import calibration_words as words
from steptime.verify.values.calibration_result import Calibration

_KINDS = {True: "loss", False: "even"}
_GRAY = "#888888"


def calibration_sections(found: Sequence[Calibration]) -> list[Section]:
    """Return what is known of each arm; on a page, also the bins and the curve of the last one."""
    if not found:
        return []
    said: list[Block] = [Blank()]
    for one in found:
        said += labeled(
            (printable(one.arm), words.describe_error(one)),
            ("", words.describe_power(one)),
            ("", words.describe_cancelling(one)),
        )
    last = found[-1]
    known = labeled(*((printable(one.arm), words.describe_tests(one)) for one in found))
    said += labeled(
        ("bins", words.describe_promises(last)),
        *(("repair", words.describe_repair(one)) for one in last.repairs),
    )
    title = "Calibration"
    return [
        Section(title, said),
        Section(title, [*known, _diagram(found), _bins(last)], only="page"),
    ]


def _bins(found: Calibration) -> TableBlock:
    """List the bins, each with the interval of what happened around what was promised."""
    rows: list[Sequence[Cell]] = []
    for one in found.bins:
        rate = one.happened
        drawn = Reach((rate.low, rate.estimate, rate.high), one.promised, _KINDS[one.is_broken])
        row: tuple[Cell, ...] = (
            f"{one.low:.3f} to {one.high:.3f}",
            format_count(one.num),
            f"{one.promised:.3f}",
            f"{rate.estimate:.3f}",
            f"{rate.low:.3f} to {rate.high:.3f}",
            drawn,
            "not as promised" if one.is_broken else "",
        )
        rows.append(row)
    ticks = Ticks([("0", 0.0, True), ("0.5", 0.5, False), ("1", 1.0, True)])
    heading = ("probability", "rows", "promised", "came true", "95 % interval", ticks, "")
    return TableBlock(heading, rows, name=f"Probabilities of {found.arm}", kind="bins")


def _diagram(found: Sequence[Calibration]) -> LinePlot:
    """Draw what happened over what was promised, beside what chance does to a calibrated model."""
    last = found[-1]
    ends, whole = [(0.0, 0.0), (1.0, 1.0)], [(each.promised, each.promised) for each in last.bins]
    reach = [(each.chance_low, each.chance_high) for each in last.bins]
    curves = [
        Curve("calibrated", ends, color=_GRAY, is_dashed=True),
        Curve("", whole, reach, color=_GRAY, has_line=False),
    ]
    for one, color in zip(reversed(found), ("#d55e00", "#0072b2"), strict=False):
        points = [(each.promised, each.happened.estimate) for each in one.bins]
        curves.append(Curve(one.arm, points, color=color, has_marks=one is last))
    return LinePlot(
        "What came true over what was promised",
        curves,
        x_name="probability",
        note=f"In the gray band lie 95 % of the bins of {printable(last.arm)}, were it calibrated.",
        y_range=(0.0, 1.0),
        x_range=(0.0, 1.0),
    )
