"""Makes the report of a judgement of a model by its predictions.

In: a `ModelVerdict`. Out: a Sheet: the answer, the difference, and each column of slices.
"""

from __future__ import annotations

from collections.abc import Sequence

from steptime.core.interval import Interval
from steptime.core.printable import printable
from steptime.core.units import format_count, format_percent
from steptime.report.blocks.phrasing import OUTCOME_TONES, labeled, listed
from steptime.report.blocks.values import (
    Blank,
    Block,
    Cell,
    Headline,
    Reach,
    Section,
    Sheet,
    TableBlock,
    Ticks,
)
from steptime.report.blocks.verify.calibration_report import calibration_sections
from steptime.report.blocks.verify.model_check_blocks import check_sections
from steptime.report.words.verify import judged_model as words
from steptime.verify.values import Outcome
from steptime.verify.values.model_verdict import ModelVerdict, SliceColumn

_KINDS = {Outcome.PASS: "gain", Outcome.FAIL: "loss", Outcome.INCONCLUSIVE: "even"}

_MOST_SLICES = 40
"""Slices of a column that are listed: those that are worse, then the largest."""


def model_report(found: ModelVerdict) -> Sheet:
    """Return the report of one judgement."""
    margin, p = found.margin, found.p_not_worse
    told = labeled(
        ("means", printable(words.describe_means(found))),
        ("gain", f"{words.describe_gain(found.gain)}, {_how(found)}"),
        ("trainings", words.describe_trainings(found)),
        ("margin", None if margin is None or p is None else words.describe_margin(margin, p)),
        ("pairs", words.describe_pairs(found)),
    )
    notes = listed("note", [words.NOTES.get(note, note) for note in found.notes])
    answer = printable(words.describe_answer(found))
    head = Headline("outcome", found.outcome.value, answer, severity=OUTCOME_TONES[found.outcome])
    return Sheet(
        kind="model",
        title=f"{found.candidate_arm} against {found.reference_arm}",
        parts=[
            Section("", [head, *labeled(("slices", printable(words.describe_where(found) or "")))]),
            Section("The difference", told),
            *(Section(f"By {column.column}", _column(column, found)) for column in found.columns),
            *_hunt(found),
            *calibration_sections(found.calibration),
            *check_sections(found.checks),
            Section("What was assumed", [Blank(), *notes] if notes else []),
            Section("", [Blank(), *labeled(("next", words.describe_next(found)))]),
        ],
    )


def _how(found: ModelVerdict) -> str:
    how = "with its 90 % interval"
    if found.decided_by is not None:
        return f"at the same shares of `{printable(found.decided_by)}`, {how}"
    return f"{'row by row' if found.is_paired else 'between two groups of rows'}, {how}"


def _hunt(found: ModelVerdict) -> list[Section]:
    """List slices that were looked for, the confirmed ones first."""
    if found.hunt is None:
        return []
    rows: list[Sequence[Cell]] = [
        (
            printable(" and ".join(f"{each.column} = {each.value}" for each in one.conditions)),
            format_count(one.num),
            f"{one.gain_proposed:+.4g}",
            f"{one.gain.estimate:+.4g}",
            f"{one.gain.low:+.4g} to {one.gain.high:+.4g}",
            f"{one.p:.2g}",
            "confirmed" if one.is_confirmed else "a lead, no finding",
        )
        for one in found.hunt.slices
    ]
    heading = ("slice", "rows", "seen", "gain", "90 % interval", "p", "")
    table = [TableBlock(heading, rows, name="Slices that were looked for", kind="hunt")]
    told = labeled(("hunt", words.describe_hunt(found.hunt)))
    return [Section("Slices that were looked for", [Blank(), *(table if rows else []), *told])]


def _column(column: SliceColumn, found: ModelVerdict) -> list[Block]:
    """List the slices with their gains on one scale, and the total at fixed shares."""
    margin = found.margin or 0.0
    shown = sorted(column.slices, key=lambda one: one.outcome is not Outcome.FAIL)[:_MOST_SLICES]
    num_hidden = len(column.slices) - len(shown)
    gains = [one.gain for one in shown] + [column.standardized]
    low = min(-1.5 * margin, *(gain.low for gain in gains))
    high = max(1.5 * margin, *(gain.high for gain in gains))
    whole = (high - low) or 1.0

    def drawn(gain: Interval, kind: str) -> Reach:
        ends = [(value - low) / whole for value in (gain.low, gain.estimate, gain.high)]
        noise = ((-margin - low) / whole, (margin - low) / whole) if margin else None
        return Reach((ends[0], ends[1], ends[2]), -low / whole, kind, noise)

    rows: list[Sequence[Cell]] = [
        (
            printable(one.name),
            format_percent(one.share),
            format_count(one.num_reference),
            format_count(one.num_candidate),
            f"{one.reference:.4g}",
            f"{one.candidate:.4g}",
            f"{one.gain.estimate:+.3g}",
            drawn(one.gain, _KINDS[one.outcome]),
            words.describe_slice(one),
        )
        for one in shown
    ]
    fixed = column.standardized
    total = drawn(fixed, "even")
    rows.append(("at these shares", "", "", "", "", "", f"{fixed.estimate:+.3g}", total, ""))
    ticks = Ticks([("0", -low / whole, True)])
    heading = (column.column, "share", "n ref.", "n cand.", "ref.", "cand.", "gain", ticks, "")
    name = f"By {column.column}"
    parts = words.describe_parts(column)
    left_out = column.num_left_out
    more = f"{num_hidden:,} more slices, which are smaller; --json has them" if num_hidden else None
    return [
        Blank(),
        TableBlock(heading, rows, name=name, kind="slices"),
        *labeled(
            ("not shown", more),
            ("REVERSAL" if column.is_reversal else "parts", parts),
            ("odds", words.describe_odds(column)),
            ("left out", f"{left_out:,} rows of slices in one arm" if left_out else None),
        ),
    ]
