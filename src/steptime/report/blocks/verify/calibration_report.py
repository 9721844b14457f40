"""Makes the part of a report that says whether probabilities come true.

In: the `Calibration` of each arm. Out: a section with the error beside chance, the bins, and what
would repair them; on a page, the reliability diagram with the band of a calibrated model.
"""

from __future__ import annotations

from collections.abc import Sequence

from steptime.core.printable import printable
from steptime.core.units import format_count, format_percent
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
            ("", words.describe_tests(one)),
            ("", words.describe_cancelling(one)),
        )
    last = found[-1]
    said += labeled(
        ("bins", words.describe_promises(last)),
        *(("repair", words.describe_repair(one)) for one in last.repairs),
    )
    title = "Calibration"
    return [
        Section(title, said),
        Section(title, [_diagram(found), _bins(last)], only="page"),
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
    """Draw what happened over what was promised, with the intervals of the last arm."""
    last = found[-1]
    diagonal = Curve("calibrated", [(0.0, 0.0), (1.0, 1.0)], color=_GRAY, is_dashed=True)
    curves = [diagonal]
    for one, color in zip(reversed(found), ("#0072b2", "#d55e00"), strict=False):
        points = [(each.promised, each.happened.estimate) for each in one.bins]
        spread = [(each.happened.low, each.happened.high) for each in one.bins]
        is_last = one is last
        curves.append(
            Curve(one.arm, points, spread if is_last else (), color=color, has_marks=is_last)
        )
    return LinePlot(
        "What came true over what was promised",
        curves,
        x_name="probability",
        note=f"Bands are exact intervals of 95 % of {printable(last.arm)}; on the dashed line, "
        f"what has a probability of 60 % comes true in {format_percent(0.6)} of the rows.",
        y_range=(0.0, 1.0),
    )
