"""Combines what was measured and concluded into the one value that reports and programs read.

In: a Measurement, its Diagnosis and its Picture. Out: a `RunDocument`, with the figures that follow
from them; the rules behind those figures are in `diagnose` and `plan`.
"""

from __future__ import annotations

import re

from steptime.app.stored.lever_trials import find_trials
from steptime.core.interval import Interval
from steptime.diagnose.utilization import hardware_utilization, model_utilization
from steptime.diagnose.values.finding import Diagnosis
from steptime.diagnose.values.reach_values import Picture
from steptime.diagnose.values.utilization_values import Utilization
from steptime.measure.values.measurement import Measurement, RankSummary
from steptime.measure.values.wall_time import USEFUL, WallTime
from steptime.plan.memory_fit import fit_memory
from steptime.plan.model_work import relate_work
from steptime.report.document.run_document import (
    RecipeGain,
    RunDocument,
    RunSums,
    Throughput,
    TrainingDocument,
    WorkSums,
)

_IMAGES = re.compile(r"(\d+)x[13]x\d+x\d+ b?float\d+")
"""The shape of a batch of images, as `64x3x224x224 float32`."""

_LEAST_PART, _MOST_PART = 0.5, 1.01
"""What the mean batch may be of a full one: the last one of an epoch is smaller."""


def describe_run(
    measurement: Measurement,
    diagnosis: Diagnosis | None,
    picture: Picture | None = None,
    trainings: tuple[TrainingDocument, ...] = (),
    recipe_gain: RecipeGain | None = None,
) -> RunDocument:
    """Return the document of a run, with all trainings of its command if there are several."""
    m = measurement
    mfu, throughput = model_utilization(m), find_throughput(m)
    return RunDocument(
        measurement=m,
        diagnosis=diagnosis,
        work=_sum_work(m, mfu, throughput),
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
        throughput=throughput,
    )


def _sum_work(m: Measurement, mfu: Utilization, found: Throughput | None) -> WorkSums | None:
    """Return the work of a step and its useful part; None where neither is known."""
    count, padding = m.count, m.padding
    if count is None and padding is None:
        return None
    useful = None if padding is None else padding.useful_fraction
    work = None if padding is None else padding.useful_work
    tokens_per_s = found.rate.estimate if found is not None and found.unit == "tokens/s" else None
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


def find_throughput(m: Measurement) -> Throughput | None:
    """Return what all ranks train on in a second; None unless each rank is known to train on it."""
    counted = [_counted(rank) for rank in m.ranks]
    known = [one for one in counted if one is not None]
    time, mean_s = (None, None) if m.steady is None else (m.steady.step_time_s, m.steady.mean_s)
    if time is None or not mean_s or time.low <= 0 or len(known) < len(counted):
        return None
    if len(units := {unit for unit, _ in known}) != 1:
        return None
    rate = sum(number for _, number in known) / mean_s
    low, high = (rate * time.estimate / end for end in (time.high, time.low))
    interval = Interval(estimate=rate, low=low, high=high, n=time.n)
    return Throughput(unit=units.pop(), rate=interval, mean_step_s=mean_s)


def _counted(rank: RankSummary) -> tuple[str, float] | None:
    """Return what a rank trains on in a mean step, and its unit; None where rows may be other.

    Rows are images by their shape, and samples by the batch size of the one loader. They count
    where a backward pass has one batch: two views of a sample, or two networks, have more.
    """
    if rank.tokens_per_step is not None:
        return "tokens/s", rank.tokens_per_step
    if not rank.rows_per_step or not rank.num_backwards or not rank.num_steps:
        return None
    if rank.num_optimizer_updates != rank.num_steps:
        return None  # several networks in turns
    per_backward = rank.rows_per_step * rank.num_steps / rank.num_backwards
    image = _IMAGES.fullmatch(rank.input_shapes[0]) if len(rank.input_shapes) == 1 else None
    sizes = [int(image[1])] if image else [one.batch_size for one in rank.loaders]
    if len(sizes) != 1 or not sizes[0]:
        return None
    is_one = _LEAST_PART < per_backward / sizes[0] <= _MOST_PART
    return ("images/s" if image else "samples/s", rank.rows_per_step) if is_one else None


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
