"""Combines what was measured and concluded into the one value that reports and programs read.

In: a Measurement, its Diagnosis and its Picture. Out: a `RunDocument`, with the figures that follow
from them; the rules behind those figures are in `diagnose` and `plan`.
"""

from __future__ import annotations

from steptime.diagnose.utilization import hardware_utilization, model_utilization
from steptime.diagnose.values.finding import Diagnosis
from steptime.diagnose.values.reach_values import Picture
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.wall_time import USEFUL, WallTime
from steptime.plan.memory_fit import fit_memory
from steptime.plan.model_work import relate_work
from steptime.report.document.run_document import (
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
) -> RunDocument:
    """Return the document of a run.

    Args:
        measurement: what was seen.
        diagnosis: what holds it back.
        picture: how close it comes to the machine's ceilings.
        trainings: all trainings of the command, if there are several.
    """
    m, count = measurement, measurement.count
    sums = None
    if count is not None:
        sums = WorkSums(
            total=count.total, model_flops=count.model_flops, is_complete=count.is_complete
        )
    mfu = model_utilization(m)
    return RunDocument(
        measurement=m,
        diagnosis=diagnosis,
        work=sums,
        mfu=mfu,
        hfu=hardware_utilization(m),
        model_work=relate_work(m, mfu),
        memory_fit=fit_memory(m),
        roofline=None if picture is None else picture.roofline,
        waterfall=None if picture is None else picture.waterfall,
        run=None if m.wall_time is None else _sum_up(m.wall_time, m.price_per_h),
        trainings=trainings,
    )


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
