"""Writes the page of a fit: the peak against the limit, what frees memory, the runs, the recipe.

In: a `FitStudy` and the text of its recipe. Out: the text of one file that needs no network and no
script. Words come from `fit_words`.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from steptime.core.units import format_bytes, format_seconds
from steptime.report.html.html_fit_curves import draw_by_batch, draw_by_length
from steptime.report.html.html_frame import frame, section
from steptime.report.html.html_memory import COLORS
from steptime.report.html.html_tags import Html, preformatted, table, tag
from steptime.report.words import fit_words as words
from steptime.report.words.batch_words import describe_batches, format_gain
from steptime.report.words.study_words import (
    describe_check,
    describe_lever,
    describe_not_tried,
    describe_state,
)
from steptime.tune.values.fit_values import FitPeak, FitStudy

_GREY = "#9aa0a6"
_WIDTH, _HEIGHT, _GAP = 1000, 34, 14
_ABSENT = "–"

_OTHERS = {"process": "#56b4e9", "fragmentation": "#cc79a7", "context": "#56b4e9"}


def render_fit_page(study: FitStudy, *, recipe: str | None = None, version: str = "") -> str:
    """Return the whole page.

    Args:
        study: what is shown.
        recipe: the text of the recipe; None where there is none.
        version: of Steptime.
    """
    parts = [
        _header(study, version),
        section("The peak against the limit", _bars(study), _held(study)),
        section("The micro-batch", draw_by_batch(study.by_batch, study.limit_bytes)),
        section("Larger batches", _batches(study)),
        section("The length of rows", draw_by_length(study.by_length, study.limit_bytes)),
        section("On several devices", _devices(study)),
        section("What would free memory", _measures(study), _refused(study)),
        section("What was run under the limit", _runs(study)),
        section("Whether it trains as well", _quality(study)),
        section("The recipe", None if recipe is None else preformatted(recipe)),
    ]
    return frame(f"steptime {study.fit_id}", [part for part in parts if part is not None])


def _header(study: FitStudy, version: str) -> Html:
    facts = [study.fit_id, study.device or "no device seen", f"Steptime {version}".strip()]
    return tag(
        "header",
        tag("h1", shlex.join(study.command)),
        tag("p", " · ".join(facts)),
        tag("p", tag("strong", words.describe_answer(study))),
        tag("p", f"The limit: {words.describe_limit(study)}."),
    )


def _bars(study: FitStudy) -> Html | None:
    """Draw who holds the peak as one bar, the run with the recipe as another, and the limit."""
    peak = study.peak
    if peak is None:
        return None
    last = study.recipe_bytes
    whole = max(peak.high, study.limit_bytes, last or 0)
    shapes = _stack(peak, whole)
    rows = 1
    if last is not None:
        shapes.append(_rectangle(0, last, whole, row=1, color="#009e73", what="with the recipe"))
        rows = 2
    at = study.limit_bytes / whole * _WIDTH
    height = rows * (_HEIGHT + _GAP)
    shapes.append(
        tag("line", x1=at, x2=at, y1=0, y2=height, stroke="#e0393e", stroke_dasharray="4 4")
    )
    drawing = tag(
        "svg",
        *shapes,
        viewBox=f"0 0 {_WIDTH} {height}",
        preserveAspectRatio="none",
        width="100%",
        height=height,
        role="img",
        aria_label="The peak against the limit",
    )
    said = f"As written: {words.describe_peak(peak)}. The dashed line is the limit."
    ranks = words.describe_ranks(study)
    if ranks is not None:
        said += f" {ranks[:1].upper()}{ranks[1:]}."
    if last is not None:
        said += f" Below: {format_bytes(last)} with the recipe, in a run under the limit."
    return tag("figure", tag("figcaption", said, _legend(peak)), drawing)


def _stack(peak: FitPeak, whole: int) -> list[Html]:
    shapes, begin = [], 0
    for name, size in _by_size(peak):
        shapes.append(
            _rectangle(begin, size, whole, color=_color(name), what=words.describe_category(name))
        )
        begin += size
    return shapes


def _rectangle(begin: int, size: int, whole: int, *, color: str, what: str, row: int = 0) -> Html:
    return tag(
        "rect",
        tag("title", f"{what}: {format_bytes(size)}"),
        x=f"{begin / whole * _WIDTH:.1f}",
        y=row * (_HEIGHT + _GAP),
        width=f"{size / whole * _WIDTH:.1f}",
        height=_HEIGHT,
        fill=color,
    )


def _legend(peak: FitPeak) -> Html:
    items = [
        tag(
            "span",
            tag("i", class_="dot", style=f"background:{_color(name)}"),
            words.describe_category(name),
        )
        for name, _ in _by_size(peak)
    ]
    return tag("div", *items, class_="legend")


def _by_size(peak: FitPeak) -> Sequence[tuple[str, int]]:
    return sorted(peak.by_category.items(), key=lambda one: -one[1])


def _color(name: str) -> str:
    return COLORS.get(name) or _OTHERS.get(name, _GREY)


def _held(study: FitStudy) -> Html | None:
    if study.peak is None:
        return None
    rows = [[words.describe_category(n), format_bytes(s)] for n, s in _by_size(study.peak)]
    return table(["who holds it at the peak", "bytes"], rows, name="Who holds the peak")


def _batches(study: FitStudy) -> Html | None:
    told = describe_batches(study)
    if not told:
        return None
    rows = [
        [
            f"{one.factor} times",
            _ABSENT if one.rate_gain is None else format_gain(one.rate_gain),
            _ABSENT if one.same_global_gain is None else format_gain(one.same_global_gain),
            _ABSENT if one.estimate_bytes is None else format_bytes(one.estimate_bytes),
        ]
        for one in study.larger_batches
    ]
    heading = ["batch", "samples in a second", "a step of the same global batch", "peak, estimated"]
    listed = table(heading, rows, name="Larger batches") if rows else None
    return tag("div", *(tag("p", one[:1].upper() + one[1:]) for one in told), listed)


def _devices(study: FitStudy) -> Html | None:
    if not study.devices:
        return None
    num = study.devices[0].num_devices
    rows = [list(words.describe_sharing(one, study.limit_bytes)) for one in study.devices]
    heading = [f"{num} devices share the same global batch", "each holds, estimated", "the limit"]
    return table(heading, rows, name="On several devices")


def _measures(study: FitStudy) -> Html | None:
    if not study.measures:
        return None
    rows = [
        [
            describe_lever(one.name, one.settings),
            one.preserves,
            format_bytes(one.frees_bytes),
            words.describe_cost(one.cost_fraction),
        ]
        for one in study.measures
    ]
    heading = ["lever", "keeps", "frees by itself, estimated", "a step takes, estimated"]
    return table(heading, rows, left=2, name="What would free memory")


def _refused(study: FitStudy) -> Html | None:
    texts = describe_not_tried(study.not_tried)
    return tag("ul", *(tag("li", text) for text in texts)) if texts else None


def _runs(study: FitStudy) -> Html | None:
    if not study.runs:
        return None
    rows = []
    for run in study.runs:
        peak = _ABSENT if run.peak_bytes is None else format_bytes(run.peak_bytes)
        step = _ABSENT if run.step_s is None else format_seconds(run.step_s)
        state = describe_state(run.state) if run.state else "as written"
        end = words.describe_run_end(run)
        rows.append([state, end, format_bytes(run.estimate_bytes), peak, step])
    heading = ["levers", "how it ended", "expected", "needed", "a step"]
    return table(heading, rows, left=2, name="Runs under the limit")


def _quality(study: FitStudy) -> Html | None:
    said = words.describe_quality_of(study)
    if said is None:
        return None
    checks = () if study.quality is None else study.quality.checks
    rows = [[check.name, check.outcome.value, describe_check(check)] for check in checks]
    listed = table(["check", "outcome", "what was found"], rows, left=3) if rows else None
    return tag("div", tag("p", said), listed)
