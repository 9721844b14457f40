"""Combines what was measured and concluded into the one value that reports and programs read.

In: a Measurement, its Diagnosis and its Picture. Out: a `RunDocument`, with the figures that follow
from them; the rules behind those figures are in `diagnose` and `plan`.
"""

from __future__ import annotations

from steptime.app.stored.lever_trials import find_trials
from steptime.diagnose.utilization import hardware_utilization, model_utilization
from steptime.diagnose.values.finding import Diagnosis
from steptime.diagnose.values.reach_values import Picture
from steptime.diagnose.values.utilization_values import Utilization
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.wall_time import USEFUL, WallTime
from steptime.plan.memory_fit import fit_memory
from steptime.plan.model_work import relate_work
from steptime.report.document.run_document import (
    RecipeGain,
    RunDocument,
    RunSums,
    TrainingDocument,
    WorkSums,
)


def describe_run(
    measurement: Measurement,
    diagnosis: Diagnosis | None,
    picture: Picture | None = None,
    trainings: tuple[TrainingDocument, ...] = (),
    recipe_gain: RecipeGain | None = None,
) -> RunDocument:
    """Return the document of a run.

    Args:
        measurement: what was seen.
        diagnosis: what holds it back.
        picture: how close it comes to the machine's ceilings.
        trainings: all trainings of the command, if there are several.
        recipe_gain: what the recipe of the run gave, if it had one.
    """
    m = measurement
    mfu = model_utilization(m)
    return RunDocument(
        measurement=m,
        diagnosis=diagnosis,
        work=sum_work(m, mfu),
        mfu=mfu,
        hfu=hardware_utilization(m),
        model_work=relate_work(m, mfu),
        memory_fit=fit_memory(m),
        roofline=None if picture is None else picture.roofline,
        waterfall=None if picture is None else picture.waterfall,
        run=None if m.wall_time is None else _sum_up(m.wall_time, m.price_per_h),
        trainings=trainings,
        trials=find_trials(m, diagnosis),
        recipe_gain=recipe_gain,
    )


def sum_work(m: Measurement, mfu: Utilization) -> WorkSums | None:
    """Return the work of a step and its useful part; None where neither is known.

    Args:
        m: the measurement.
        mfu: the model FLOP utilization of the same run.
    """
    count, padding = m.count, m.padding
    if count is None and padding is None:
        return None
    useful = None if padding is None else padding.useful_fraction
    work = None if padding is None else padding.useful_work
    tokens_per_s = _tokens_per_s(m)
    return WorkSums(
        total=None if count is None else count.total,
        model_flops=None if count is None else count.model_flops,
        is_complete=None if count is None else count.is_complete,
        useful_fraction=useful,
        useful_work_fraction=work,
        useful_mfu=None if mfu.fraction is None or work is None else mfu.fraction * work,
        tokens_per_s=tokens_per_s,
        useful_tokens_per_s=None
        if tokens_per_s is None or useful is None
        else tokens_per_s * useful,
    )


def _tokens_per_s(m: Measurement) -> float | None:
    """Return the tokens of all ranks in a second of steps; None where one rank has none."""
    tokens = [rank.tokens_per_step for rank in m.ranks]
    known = [one for one in tokens if one is not None]
    mean_s = None if m.steady is None else m.steady.mean_s
    if not known or len(known) < len(tokens) or not mean_s:
        return None
    return sum(known) / mean_s


def _sum_up(wall: WallTime, price_per_h: float | None) -> RunSums:
    useful_s = wall.of(USEFUL)
    price_per_s = None if price_per_h is None else price_per_h / 3600
    return RunSums(
        wall_s=wall.total_s,
        useful_s=useful_s,
        goodput_fraction=wall.goodput_fraction,
        is_open=wall.is_open,
        price_per_h=price_per_h,
        cost=None if price_per_s is None else price_per_s * wall.total_s,
        cost_beside=None if price_per_s is None else price_per_s * (wall.total_s - useful_s),
        energy_j=wall.energy_j,
    )
