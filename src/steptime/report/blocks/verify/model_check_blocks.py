"""Makes the blocks of what is asked of a model beside its comparison with another.

In: `ModelChecks`. Out: a section each for the training and people, leaks, and probes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from steptime.core.printable import printable
from steptime.core.units import format_count, format_percent
from steptime.report.blocks.phrasing import labeled, listed
from steptime.report.blocks.values import (
    Blank,
    Block,
    Cell,
    Curve,
    LinePlot,
    Section,
    TableBlock,
)
from steptime.report.words.verify import model_check_words as words
from steptime.verify.values.predictor_results import ModelChecks, PredictorRow
from steptime.verify.values.probe_results import ProbeReport, ProbeResult

_CANDIDATE, _REFERENCE = "#d55e00", "#0072b2"


def check_sections(found: ModelChecks | None) -> Iterator[Section]:
    """Yield a section for each kind of check that was asked for."""
    if found is None:
        return
    if found.leaks is not None:
        told = [printable(words.describe_leak(one)) for one in found.leaks.counts]
        told.append(words.describe_compared(found.leaks))
        yield Section("Rows in the training, too", [Blank(), *listed("leaks", told)])
    if found.simple is not None or found.human is not None:
        yield Section("Beside simple predictors and people", _predictors(found))
    if found.others:
        yield Section("Other columns", _others(found))
    if found.probes is not None:
        yield Section("Probes", _probes(found.probes))


def _predictors(found: ModelChecks) -> list[Block]:
    """List every predictor, the model among them."""
    simple, human = found.simple, found.human
    rows = list[PredictorRow]()
    rows += simple.rows if simple is not None else ()
    rows += human.rows if human is not None else ()
    cells = [
        (
            printable(words.name_predictor(one)),
            format_count(one.num_rows),
            "" if one.trained is None else f"{one.trained:.4g}",
            f"{one.mean:.4g}",
            "" if one.gain is None else words.describe_reach(one.gain),
        )
        for one in rows
    ]
    heading = ("predictor", "n", "in training", "here", "the model over it")
    return [
        Blank(),
        TableBlock(heading, cells, name="Beside simple predictors and people", kind="predictors"),
        *labeled(
            ("simple", None if simple is None else printable(words.describe_simple(simple))),
            ("made", None if simple is None else printable(words.describe_drawn(simple))),
            ("people", None if human is None else words.describe_humans(human)),
        ),
    ]


def _others(found: ModelChecks) -> list[Block]:
    rows: list[Sequence[Cell]] = [
        (
            printable(one.column),
            format_count(one.num_reference),
            format_count(one.num_candidate),
            f"{one.reference:.4g}",
            f"{one.candidate:.4g}",
            words.describe_other(one),
        )
        for one in found.others
    ]
    heading = ("column", "n ref.", "n cand.", "ref.", "cand.", "")
    return [Blank(), TableBlock(heading, rows, name="Other columns", kind="others")]


def _probes(found: ProbeReport) -> list[Block]:
    blocks: list[Block] = [Blank()]
    for one in found.results:
        answer = "shown" if one.outcome is None else one.outcome.value
        text = f"{answer}: {words.describe_probe(one)}"
        worst = words.describe_worst(one)
        change = f" (by {one.change})" if one.kind == "fresh" else ""
        blocks += listed(
            "probe", [printable(f"{one.name}{change}: {text}" + (f", {worst}" if worst else ""))]
        )
        if one.doses:
            blocks += _doses(one)
    blocks += labeled(("predictor", words.describe_predictor(found)))
    return blocks


def _doses(one: ProbeResult) -> list[Block]:
    """List and draw what is retained of the metric at each dose."""
    cells = [
        (
            f"{dose.dose:g}",
            format_percent(dose.retained),
            "" if dose.reference is None else format_percent(dose.reference),
            "" if dose.gain is None else words.describe_reach(dose.gain),
            "" if dose.outcome is None else dose.outcome.value,
        )
        for dose in one.doses
    ]
    curves = [_curve("candidate", [(0.0, 1.0), *((d.dose, d.retained) for d in one.doses)])]
    if one.doses[0].reference is not None:
        points = [(0.0, 1.0), *((d.dose, d.reference or 0.0) for d in one.doses)]
        curves.append(_curve("reference", points))
    name = f"{printable(one.name)}: what is retained of the metric"
    top = max(y or 0.0 for curve in curves for _, y in curve.points)
    plot = LinePlot(name, curves, x_name="dose", y_range=(0.0, 1.05 * top))
    heading = ("dose", "retained", "reference's", "gain", "")
    return [plot, TableBlock(heading, cells, name=name, kind="doses")]


def _curve(name: str, points: Sequence[tuple[float, float]]) -> Curve:
    color = _CANDIDATE if name == "candidate" else _REFERENCE
    return Curve(name, list(points), color=color, has_marks=True)
