"""Makes the report of a fit: the peak against the limit, what frees memory, the runs, the recipe.

In: a `FitStudy` and the text of its recipe. Out: blocks. Words come from `fit_words`.
"""

from __future__ import annotations

import shlex

from steptime.core.printable import printable
from steptime.core.units import format_bytes, format_seconds
from steptime.report.blocks.colors import color_of
from steptime.report.blocks.fit.batch_report import describe_batches, format_gain
from steptime.report.blocks.phrasing import labeled, listed, sections
from steptime.report.blocks.values import (
    Bar,
    Block,
    Code,
    CommandLine,
    Curve,
    Headline,
    Labeled,
    LinePlot,
    Section,
    Sheet,
    TableBlock,
)
from steptime.report.words.fit import fit_words as words
from steptime.report.words.study.study_words import (
    describe_check,
    describe_lever,
    describe_not_tried,
    describe_state,
)
from steptime.tune.values.fit_values import FitStudy

_ABSENT = "–"
_BLUE, _GREEN, _RED = "#0072b2", "#009e73", "#e0393e"


def fit_report(study: FitStudy, *, recipe: str | None = None) -> Sheet:
    """Return the report of one fit, with the text of its recipe where there is one."""
    parts = (
        ("", _outcome(study)),
        ("The peak against the limit", _peak(study)),
        ("The micro-batch", _by_batch(study)),
        ("Larger batches", _batches(study)),
        ("The length of rows", _by_length(study)),
        ("On several devices", _devices(study)),
        ("What would free memory", [*_measures(study), *_not_tried(study)]),
        ("Runs under the limit", _runs(study)),
        ("Whether it trains as well", _checks(study)),
        ("The recipe", [] if recipe is None else [Code(recipe)]),
    )
    pages = ("The micro-batch", "Whether it trains as well", "The recipe", "The length of rows")
    return Sheet(
        kind="fit",
        command=study.command,
        facts=(study.fit_id, study.device or "no device seen"),
        parts=[*sections(parts, pages=pages), Section("", [_next(study)])],
    )


def _outcome(study: FitStudy) -> list[Block]:
    is_good = bool(study.fits) or study.is_made_to_fit
    title = printable(words.describe_answer(study))
    told = [
        ("limit", words.describe_limit(study)),
        ("recipe", describe_state(study.recipe) if study.recipe else None),
        ("step time", _pace(study)),
        ("quality", words.describe_quality_of(study)),
        ("room", words.describe_batch(study)),
    ]
    return [
        Headline("outcome", title, severity="good" if is_good else "warning"),
        *labeled(*told),
    ]


def _pace(study: FitStudy) -> str | None:
    """Show the step as written and with the recipe; each is of one run, so neither is a proof."""
    if study.baseline_step_s is None or study.fitted_step_s is None:
        return None
    before, after = format_seconds(study.baseline_step_s), format_seconds(study.fitted_step_s)
    return f"{before} as written, {after} with the recipe (one run of each)"


def _peak(study: FitStudy) -> list[Block]:
    """Draw the peak against the limit, and who holds it."""
    peak = study.peak
    if peak is None:
        return []
    whole = max(peak.estimate, study.limit_bytes, study.recipe_bytes or 0) or 1
    held = sorted(((n, s) for n, s in peak.by_category.items() if s), key=lambda one: -one[1])
    rows = [
        ("needed", [(color_of(name), size / whole) for name, size in held], peak.estimate),
        ("limit", [(_RED, study.limit_bytes / whole)], study.limit_bytes),
    ]
    if study.recipe_bytes is not None:
        share = study.recipe_bytes / whole
        rows.append(("with recipe", [(_GREEN, share)], study.recipe_bytes))
    ranks = words.describe_ranks(study)
    near = f"{describe_state(study.nearest)}: about {format_bytes(study.nearest_bytes or 0)}"
    return [
        Labeled("peak", words.describe_peak(peak)),
        TableBlock(
            ("", "", ""),
            [(name, Bar(parts), format_bytes(size)) for name, parts, size in rows],
            left=2,
            label="",
            name="The peak against the limit",
            kind="gains",
        ),
        Labeled(
            "held by", ", ".join(f"{words.describe_category(n)} {format_bytes(s)}" for n, s in held)
        ),
        *([] if ranks is None else [Labeled("ranks", ranks)]),
        *([Labeled("nearest", printable(near))] if study.nearest else []),
    ]


def _by_batch(study: FitStudy) -> list[Block]:
    points = [(one.factor, float(one.bytes)) for one in study.by_batch]
    curve = Curve("as written", points, color=_BLUE, has_marks=True)
    return _over(curve, study, "The peak by the size of the micro-batch", "micro-batch")


def _by_length(study: FitStudy) -> list[Block]:
    points = [(one.factor, float(one.high)) for one in study.by_length]
    spread = [(float(one.low), float(one.high)) for one in study.by_length]
    curve = Curve("between both bounds", points, spread=spread, color=_BLUE, has_marks=True)
    note = (
        "One bound takes all that grows to go with the elements, the other with the square of a "
        "row, as an attention matrix that is kept does."
    )
    return _over(curve, study, "The peak by the length of rows", "length of rows", note)


def _over(curve: Curve, study: FitStudy, title: str, of: str, note: str = "") -> list[Block]:
    """Draw a peak over a size, as a multiple of today's, with its table."""
    if len(curve.points) < 2:
        return []
    limit = [("the limit", float(study.limit_bytes))]
    across = f"{of}, as a multiple of today's"
    rows = [
        (f"{x:g} times", format_bytes(y or 0))
        if not curve.spread
        else (f"{x:g} times", " to ".join(map(format_bytes, curve.spread[i])))
        for i, (x, y) in enumerate(curve.points)
    ]
    top = max(*(y or 0.0 for _, y in curve.points), study.limit_bytes) * 1.05
    plot = LinePlot(title, [curve], limit, across, y_unit="bytes", note=note, y_range=(0.0, top))
    return [plot, TableBlock((of, "peak, estimated"), rows, name=title)]


def _batches(study: FitStudy) -> list[Block]:
    told = describe_batches(study)
    rows = [
        (
            f"{one.factor} times",
            _ABSENT if one.rate_gain is None else format_gain(one.rate_gain),
            _ABSENT if one.same_global_gain is None else format_gain(one.same_global_gain),
            _ABSENT if one.estimate_bytes is None else format_bytes(one.estimate_bytes),
        )
        for one in study.larger_batches
    ]
    heading = (
        "batch",
        "samples per second",
        "step of the same global batch",
        "peak, estimated",
    )
    return [
        *listed("batch", told),
        *([TableBlock(heading, rows, name="Larger batches")] if rows and told else []),
    ]


def _devices(study: FitStudy) -> list[Block]:
    """List what each of several devices would hold."""
    if not study.devices:
        return []
    num = study.devices[0].num_devices
    limit = format_bytes(study.limit_bytes)
    heading = (f"on {num} devices, the same global batch", "each holds", f"of {limit}")
    rows = [words.describe_sharing(one, study.limit_bytes) for one in study.devices]
    return [TableBlock(heading, rows, name="On several devices")]


def _measures(study: FitStudy) -> list[Block]:
    """List what would free memory alone, and what it costs."""
    if not study.measures:
        return []
    heading = ("what would free memory", "keeps", "alone, estimated", "step time, estimated")
    rows = [
        (
            printable(describe_lever(one.name, one.settings)),
            one.preserves,
            format_bytes(one.frees_bytes),
            words.describe_cost(one.cost_fraction),
        )
        for one in study.measures
    ]
    return [TableBlock(heading, rows, left=2, name="What would free memory")]


def _runs(study: FitStudy) -> list[Block]:
    """List the runs under the limit."""
    rows = [
        (
            printable(describe_state(run.state) if run.state else "as written"),
            printable(words.describe_run_end(run)),
            format_bytes(run.estimate_bytes),
            _ABSENT if run.peak_bytes is None else format_bytes(run.peak_bytes),
            _ABSENT if run.step_s is None else format_seconds(run.step_s),
        )
        for run in study.runs
    ]
    heading = ("run under the limit", "how it ended", "expected", "needed", "step time")
    return [TableBlock(heading, rows, left=2, name="Runs under the limit")] if rows else []


def _checks(study: FitStudy) -> list[Block]:
    if study.quality is None or not study.quality.checks:
        return []
    rows = [(one.name, one.outcome.value, describe_check(one)) for one in study.quality.checks]
    return [TableBlock(("check", "outcome", "what was found"), rows, left=3, name="Checks")]


def _not_tried(study: FitStudy) -> list[Block]:
    return listed("not tried", describe_not_tried(study.not_tried))


def _next(study: FitStudy) -> CommandLine:
    """Name the next command."""
    command = shlex.join(study.command)
    if study.recipe_file is not None or study.is_made_to_fit:
        what = f"steptime run --recipe {shlex.quote(study.recipe_file or 'fit.toml')} -- {command}"
    elif study.fits:
        what = f"steptime tune -- {command}"
    else:
        what = f"steptime run -- {command}"
    return CommandLine(printable(what), "next")
