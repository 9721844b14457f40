"""Makes the report of a judgement over seeds, and of what numbers of runs can decide.

In: a `TrainingVerdict` or a `PowerPlan`. Out: blocks. Words come from `verify_words`.
"""

from __future__ import annotations

from collections.abc import Sequence

from steptime.core.units import format_percent
from steptime.report.blocks.phrasing import labeled, sections
from steptime.report.blocks.values import (
    Blank,
    Block,
    Curve,
    Headline,
    LinePlot,
    Reach,
    Sheet,
    TableBlock,
    Ticks,
)
from steptime.report.words.study import verify_words as words
from steptime.verify.values import Outcome
from steptime.verify.values.seed_runs import (
    REFERENCE,
    PowerPlan,
    SummaryDifference,
    TrainingVerdict,
)

_REFERENCE_COLOR, _CANDIDATE_COLOR, _MARGIN_COLOR = "#0072b2", "#d55e00", "#e0393e"
_FROM = 0.25
"""Of the training: the scale of the curves is that of the rest."""
_KINDS = {Outcome.PASS: "gain", Outcome.FAIL: "loss"}


def verdict_report(
    found: TrainingVerdict, *, title: str = "", power: PowerPlan | None = None
) -> Sheet:
    """Return the report of a judgement.

    Args:
        found: the verdict.
        title: what was judged.
        power: what numbers of runs decide with the spread that was seen.
    """
    share = None
    if found.training_fraction is not None and found.margin:
        share = found.training_fraction / found.margin
    runs = "How many runs decide"
    parts = (
        ("", [_answer(found), *labeled(*_rests_on(found))]),
        ("The metric over the training", _curves(found)),
        ("The gains against the margin", _gains(found)),
        ("What it saves", labeled(*_saved(found))),
        (runs, [] if power is None else power_blocks(power, training_per_margin=share)),
    )
    return Sheet(kind="judgement", title=title, parts=sections(parts, pages=[runs]))


def seeds_blocks(found: TrainingVerdict | None) -> list[Block]:
    """Return what trainings over seeds said of a recipe, for the report of a study."""
    if found is None:
        return []
    told = [("margin", words.describe_margin(found)), ("price", words.describe_price(found))]
    return [_answer(found), *labeled(*told), *_curves(found), *_gains(found)]


def _answer(found: TrainingVerdict) -> Headline:
    tones = {Outcome.PASS: "good", Outcome.FAIL: "bad"}
    tone = tones.get(found.outcome, "warning")
    return Headline("outcome", words.describe_verdict(found), severity=tone)


def _rests_on(found: TrainingVerdict) -> list[tuple[str, str | None]]:
    correlation = found.seed_correlation
    told = None if correlation is None else f"correlation over equal seeds {correlation:.2f}"
    return [
        ("margin", words.describe_margin(found)),
        ("gain", words.describe_gain(found)),
        ("runs", words.describe_runs(found)),
        ("diverged", words.describe_diverged(found)),
        ("A/A", words.describe_same(found)),
        ("seeds", told),
    ]


def _saved(found: TrainingVerdict) -> list[tuple[str, str | None]]:
    return [
        ("speed", words.describe_speed(found)),
        ("price", words.describe_price(found)),
        ("to target", words.describe_to_target(found)),
    ]


def _curves(found: TrainingVerdict) -> list[Block]:
    """Draw both arms, the mean of the runs as a line and their range as a band, and the margin.

    The scale is that of the last three quarters, where the arms are judged.
    """
    by_arm = found.curves or {}
    spots = [one for points in by_arm.values() for one in points]
    if len(spots) < 2:
        return []
    curves = [
        Curve(
            arm,
            [(one.point, one.mean) for one in points],
            spread=[(one.low, one.high) for one in points],
            color=_REFERENCE_COLOR if arm == REFERENCE else _CANDIDATE_COLOR,
        )
        for arm, points in by_arm.items()
    ]
    allowed = _allowed(found)
    if allowed:
        name = "the reference, worse by the margin"
        curves.append(Curve(name, allowed, color=_MARGIN_COLOR, is_dashed=True))
    first, last = min(one.point for one in spots), max(one.point for one in spots)
    late = [one for one in spots if one.point >= first + _FROM * (last - first)] or spots
    values = [v for one in late for v in (one.low, one.high)] + [v for _, v in allowed[-2:]]
    note = (
        "Lines: the mean of the runs. Bands: their range. The scale fits the last three quarters."
    )
    plot = LinePlot(
        "The metric over the training",
        curves,
        x_name="samples or steps",
        note=note,
        y_range=(min(values), max(values)),
    )
    return [plot]


def _allowed(found: TrainingVerdict) -> list[tuple[float, float]]:
    """Return the reference's curve, worse by the margin; nothing without a margin."""
    if found.margin is None:
        return []
    points = (found.curves or {}).get(REFERENCE, ())
    toward = 1.0 if found.is_better_down else -1.0
    return [(one.point, one.mean + toward * found.margin) for one in points]


def _gains(found: TrainingVerdict) -> list[Block]:
    """List each gain, and draw its interval in margins: none has a loss left of the band."""
    named = [(words.SUMMARIES[one.name], one) for one in found.differences]
    if not named:
        return []
    if found.same is not None and words.describe_same(found):
        named.insert(1, (words.SAME, found.same))
    ends = [end / one.margin for _, one in named for end in (one.low, one.high)]
    low, high = min(-1.5, *ends), max(1.5, *ends)

    def place(value: float) -> float:
        return (value - low) / (high - low)

    def drawn(one: SummaryDifference) -> Reach:
        interval = tuple(place(v / one.margin) for v in (one.low, one.estimate, one.high))
        kind = _KINDS.get(one.outcome, "even")
        return Reach(interval, place(0), kind, (place(-1), place(0)))  # type: ignore[arg-type]

    rows = [
        (
            name,
            one.outcome.value,
            f"{one.estimate:+.4g}",
            f"{one.low:+.4g} to {one.high:+.4g}",
            f"{one.p_not_worse:.3f}",
            drawn(one),
        )
        for name, one in named
    ]
    ticks = Ticks([("0", place(0), True), ("-margin", place(-1), True)])
    table = TableBlock(
        ("by", "outcome", "gain", "interval", "p", ticks),
        rows,
        left=2,
        name="The gains against the margin",
        notes=[words.describe_rests(one) for _, one in named],
    )
    legend = "An interval that begins right of -margin is not worse by the margin."
    return [table, *labeled(("", legend))]


def power_blocks(plan: PowerPlan, *, training_per_margin: float | None = None) -> list[Block]:
    """Return the runs that a margin takes, then what numbers of runs decide.

    Args:
        plan: what is shown.
        training_per_margin: the share of a training that a margin of 1 is worth, where known.
    """
    spread = f"{plan.sd:.4g} from seed to seed"
    if plan.sd_seen is not None:
        spread += f" at most, by {plan.num_pilots} runs that showed {plan.sd_seen:.4g}"
    told: list[tuple[str, str | None]] = [("spread", spread)]
    shares = [f"{one * 100:.0f} %" for one in plan.powers]
    if plan.margin is not None:
        told += [
            ("margin", f"{plan.margin:.4g}"),
            ("not worse", _numbers(plan.num_runs_not_worse, shares)),
            ("still", _numbers(plan.num_runs_still, shares)),
        ]
    head = [f"{kind}, {share}" for kind in ("not worse", "still") for share in shares]
    rows = [
        (
            str(one.num_runs),
            *(_margin(margin, training_per_margin) for margin in (*one.not_worse, *one.still)),
        )
        for one in plan.rows
    ]
    name = "The smallest margin that is decided"
    return [
        *labeled(*told),
        Blank(),
        TableBlock(("runs of each arm", *head), rows, left=0, name=name),
        *labeled(("", "Each cell: the smallest margin that so many runs decide.")),
    ]


def _numbers(numbers: Sequence[int | None], shares: Sequence[str]) -> str:
    counts = ", ".join(
        f"{'more than 10,000' if number is None else number} of each arm in {share}"
        for number, share in zip(numbers, shares, strict=True)
    )
    return f"decided by {counts} of the cases without a difference"


def _margin(margin: float, share: float | None) -> str:
    told = "" if share is None else f" ({format_percent(margin * share)} of training)"
    return f"{margin:.4g}{told}"
