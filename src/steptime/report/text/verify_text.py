"""Shows a judgement over seeds, and what runs can decide.

In: a `TrainingVerdict` or a `PowerPlan`. Out: lines of labeled blocks and tables.
"""

from __future__ import annotations

from rich.text import Text

from steptime.report.text.page import Page, columns
from steptime.report.words import verify_words as words
from steptime.verify.values import Outcome
from steptime.verify.values.seed_runs import PowerPlan, TrainingVerdict

_STYLES = {Outcome.PASS: "bold green", Outcome.FAIL: "bold red"}


def verdict_lines(found: TrainingVerdict, *, page: Page) -> list[Text]:
    """Return the answer, then what it rests on."""
    style = _STYLES.get(found.outcome, "bold yellow")
    lines = page.block("outcome", Text(words.describe_verdict(found), style=style))
    told = (
        ("margin", words.describe_margin(found)),
        ("gain", words.describe_gain(found)),
        ("runs", words.describe_runs(found)),
        ("diverged", words.describe_diverged(found)),
        ("A/A", words.describe_same(found)),
        ("speed", words.describe_speed(found)),
        ("to target", words.describe_to_target(found)),
    )
    for label, text in told:
        if text is not None:
            lines += page.block(label, text)
    if found.seed_correlation is not None:
        lines += page.block("seeds", f"correlation over equal seeds {found.seed_correlation:.2f}")
    table = _table(found)
    return [*lines, *([Text(), *table] if table else [])]


def _table(found: TrainingVerdict) -> list[Text]:
    """List the three summaries."""
    if not found.differences:
        return []
    rows = [("by", "gain", "interval", "margin", "p", "permuted", "", "")]
    for one in found.differences:
        permuted = "–" if one.p_permuted is None else f"{one.p_permuted:.3f}"
        rows.append(
            (
                words.SUMMARIES[one.name],
                f"{one.estimate:+.4g}",
                f"{one.low:+.4g} to {one.high:+.4g}",
                f"{one.margin:.4g}",
                f"{one.p_not_worse:.3f}",
                permuted,
                one.outcome.value,
                words.describe_allowed(one),
            )
        )
    return columns(rows)


def power_lines(plan: PowerPlan, *, page: Page) -> list[Text]:
    """Return the runs that a margin takes, then what numbers of runs decide."""
    lines: list[Text] = []
    spread = f"{plan.sd:.4g} from seed to seed"
    if plan.sd_seen is not None:
        spread += f" at most, by {plan.num_pilots} runs that showed {plan.sd_seen:.4g}"
    lines += page.block("spread", spread)
    shares = [f"{one * 100:.0f} %" for one in plan.powers]
    if plan.margin is not None:
        lines += page.block("margin", f"{plan.margin:.4g}")
        pairs = (("not worse", plan.num_runs_not_worse), ("still", plan.num_runs_still))
        for label, numbers in pairs:
            counts = ", ".join(
                f"{'more than 10,000' if number is None else number} of each arm in {share}"
                for number, share in zip(numbers, shares, strict=True)
            )
            lines += page.block(label, f"decided by {counts} of the cases without a difference")
    head = [f"{kind}, {share}" for kind in ("not worse", "still") for share in shares]
    rows = [("runs an arm", *head)]
    rows += [
        (str(one.num_runs), *(f"{margin:.4g}" for margin in (*one.not_worse, *one.still)))
        for one in plan.rows
    ]
    return [*lines, Text(), *columns(rows, left=0)]
