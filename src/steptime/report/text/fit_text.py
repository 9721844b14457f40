"""Prints the report of a fit: the peak against the limit, what frees memory, the runs, the recipe.

In: a `FitStudy`. Out: lines on a console. Words come from `fit_words`, layout from `page`.
"""

from __future__ import annotations

import shlex

from rich.console import Console
from rich.text import Text

from steptime.core.printable import printable
from steptime.core.units import format_bytes, format_seconds
from steptime.report.text.page import LABEL_WIDTH, Page, columns, page_of, shortened
from steptime.report.words import fit_words as words
from steptime.report.words.batch_words import describe_batches
from steptime.report.words.study_words import describe_lever, describe_not_tried, describe_state
from steptime.tune.values.fit_values import FitStudy

_BAR = 36
_WORTH_NAMING = 0.01
"""A fraction of the peak; smaller parts share a line."""

MAX_MEASURES = 8


def render_fit(study: FitStudy, *, console: Console) -> None:
    """Print the report of one fit."""
    page = page_of(console)
    page.write(_report(study, page))


def _report(study: FitStudy, page: Page) -> list[Text]:
    blocks = (
        _header(study, page),
        _outcome(study, page),
        _peak(study, page),
        _devices(study),
        _measures(study),
        _runs(study),
        _not_tried(study, page),
        _next(study, page),
    )
    lines: list[Text] = []
    for block in blocks:
        lines += [Text()] * bool(lines and block) + block
    return lines


def _header(study: FitStudy, page: Page) -> list[Text]:
    command = shortened(shlex.join(study.command), page.width - LABEL_WIDTH)
    lines = page.block("steptime", Text(command, style="bold"))
    lines += page.block("fit", f"{study.fit_id} · {printable(study.device or 'no device seen')}")
    return lines + page.block("limit", words.describe_limit(study))


def _outcome(study: FitStudy, page: Page) -> list[Text]:
    is_good = bool(study.fits) or study.is_made_to_fit
    style = "bold green" if is_good else "bold yellow"
    lines = page.block("outcome", Text(printable(words.describe_answer(study)), style=style))
    if study.recipe:
        lines += page.block("recipe", printable(describe_state(study.recipe)))
        lines += _pace(study, page)
    quality = words.describe_quality_of(study)
    if quality is not None:
        lines += page.block("quality", printable(quality))
    room = words.describe_batch(study)
    if room is not None:
        lines += page.block("room", room)
    for number, sentence in enumerate(describe_batches(study)):
        lines += page.block("" if number else "batch", printable(sentence))
    if study.nearest:
        near = f"{describe_state(study.nearest)}: about {format_bytes(study.nearest_bytes or 0)}"
        lines += page.block("nearest", printable(near))
    return lines


def _pace(study: FitStudy, page: Page) -> list[Text]:
    """Show the step as written and with the recipe; each is of one run, so neither is a proof."""
    if study.baseline_step_s is None or study.fitted_step_s is None:
        return []
    before, after = format_seconds(study.baseline_step_s), format_seconds(study.fitted_step_s)
    return page.block("step", f"{before} as written, {after} with the recipe (one run of each)")


def _peak(study: FitStudy, page: Page) -> list[Text]:
    """Draw the peak against the limit, and who holds it."""
    peak = study.peak
    if peak is None:
        return []
    whole = max(peak.estimate, study.limit_bytes)
    lines = page.block("peak", words.describe_peak(peak))
    rows = [("needed", peak.estimate), ("limit", study.limit_bytes)]
    last = study.recipe_bytes
    rows += [] if last is None else [("with recipe", last)]
    for label, size in rows:
        bar = page.bar(size / whole, _BAR) if whole else ""
        lines.append(Text(f"{'':<{LABEL_WIDTH}}{label:<12}{bar}  {format_bytes(size)}"))
    held = sorted(peak.by_category.items(), key=lambda one: -one[1])
    shown = [(name, size) for name, size in held if size >= _WORTH_NAMING * peak.estimate]
    text = ", ".join(f"{words.describe_category(n)} {format_bytes(s)}" for n, s in shown)
    lines += page.block("held by", text)
    ranks = words.describe_ranks(study)
    return lines if ranks is None else lines + page.block("ranks", ranks)


def _devices(study: FitStudy) -> list[Text]:
    """List what each of several devices would hold."""
    if not study.devices:
        return []
    num = study.devices[0].num_devices
    rows = [
        (
            f"on {num} devices, the same global batch",
            "each holds",
            f"of {format_bytes(study.limit_bytes)}",
        )
    ]
    rows += [words.describe_sharing(one, study.limit_bytes) for one in study.devices]
    return columns(rows)


def _measures(study: FitStudy) -> list[Text]:
    """List what would free memory alone, and what it costs."""
    if not study.measures:
        return []
    rows = [("what would free memory", "alone", "a step takes", "keeps")]
    rows += [
        (
            printable(describe_lever(one.name, one.settings)),
            format_bytes(one.frees_bytes),
            words.describe_cost(one.cost_fraction),
            one.preserves,
        )
        for one in study.measures[:MAX_MEASURES]
    ]
    return columns(rows)


def _runs(study: FitStudy) -> list[Text]:
    """List the runs under the limit."""
    if not study.runs:
        return []
    rows = [("run under the limit", "expected", "needed", "how it ended")]
    for run in study.runs:
        state = describe_state(run.state) if run.state else "as written"
        peak = "unknown" if run.peak_bytes is None else format_bytes(run.peak_bytes)
        row = (printable(state), format_bytes(run.estimate_bytes), peak)
        rows.append((*row, printable(words.describe_run_end(run))))
    return columns(rows)


def _not_tried(study: FitStudy, page: Page) -> list[Text]:
    lines: list[Text] = []
    for text in describe_not_tried(study.not_tried):
        lines += page.block("" if lines else "not tried", printable(text))
    return lines


def _next(study: FitStudy, page: Page) -> list[Text]:
    """Name the next command."""
    command = shlex.join(study.command)
    if study.recipe_file is not None:
        what = f"steptime run --recipe {shlex.quote(study.recipe_file)} -- {command}"
    elif study.fits or study.is_made_to_fit:
        what = f"steptime tune -- {command}"
    else:
        what = f"steptime run -- {command}"
    return page.with_command("next", Text(), printable(what))
