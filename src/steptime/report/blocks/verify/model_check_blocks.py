"""Makes the blocks of what is asked of a model beside its comparison with another.

In: `ModelChecks`. Out: a section each for the training and people, leaks, and probes.
"""

from __future__ import annotations

from collections.abc import Iterator

from steptime.core.interval import Interval
from steptime.core.printable import printable
from steptime.core.units import format_count, format_percent
from steptime.report.blocks.phrasing import labeled, listed
from steptime.report.blocks.values import Blank, Block, Curve, LinePlot, Section, TableBlock
from steptime.report.words.verify import model_check_words as words
from steptime.verify.values.check_results import ModelChecks, ProbeReport, ProbeResult


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
    cells = [
        (
            words.name_predictor(one),
            format_count(one.num_rows),
            "" if one.trained is None else f"{one.trained:.4g}",
            f"{one.mean:.4g}",
            _gain(one.gain),
        )
        for one in (*(simple.rows if simple else ()), *(human.rows if human else ()))
    ]
    heading = ("predictor", "n", "in training", "here", "the model over it")
    return [
        Blank(),
        TableBlock(heading, cells, name="Beside simple predictors and people", kind="predictors"),
        *labeled(
            ("simple", None if simple is None else words.describe_simple(simple)),
            ("people", None if human is None else words.describe_humans(human)),
        ),
    ]


def _gain(gain: Interval | None) -> str:
    return "" if gain is None else words.describe_gain(gain)


def _others(found: ModelChecks) -> list[Block]:
    rows = [
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
    heading = ("column", "n ref.", "n cand.", "ref.", "cand.", "for the candidate")
    return [Blank(), TableBlock(heading, rows, name="Other columns", kind="others")]


def _probes(found: ProbeReport) -> list[Block]:
    blocks: list[Block] = [Blank()]
    for one in found.results:
        blocks += labeled(("probe", printable(words.describe_probe(one))))
        blocks += _doses(one) if one.doses else []
    return [*blocks, *labeled(("predictor", words.describe_predictor(found)))]


def _doses(one: ProbeResult) -> list[Block]:
    """List and draw what is retained of the metric at each dose."""
    cells = [
        (
            f"{dose.dose:g}",
            format_percent(dose.retained),
            "" if dose.reference is None else format_percent(dose.reference),
            _gain(dose.gain),
            "" if dose.outcome is None else dose.outcome.value,
        )
        for dose in one.doses
    ]
    mine = [(dose.dose, dose.retained) for dose in one.doses]
    theirs = [(dose.dose, dose.reference) for dose in one.doses if dose.reference is not None]
    both = (("reference", "#0072b2", theirs), ("candidate", "#d55e00", mine))
    curves = [
        Curve(name, [(0.0, 1.0), *points], color=color, has_marks=True)
        for name, color, points in both
        if points
    ]
    name = f"{printable(one.name)}: what is retained of the metric"
    plot = LinePlot(name, curves, x_name="dose", y_range=(0.0, 1.0))
    heading = ("dose", "retained", "reference's", "gain", "")
    return [plot, TableBlock(heading, cells, name=name, kind="doses")]
