"""Computes how much work and memory a run needs, before there is one.

`steptime.plan.memory` forecasts the peak of a training step, and `steptime.plan.rank_memory` that
of one rank of several; they are imported when somebody asks for them.
"""

from __future__ import annotations

import typing
from typing import Any

if typing.TYPE_CHECKING:
    from steptime.forecasting.fake_ranks import RankPlan
    from steptime.forecasting.forecast_model import memory
    from steptime.forecasting.rank_forecast import rank_memory

__all__ = ["RankPlan", "memory", "rank_memory"]

HOMES = {"RankPlan": "fake_ranks", "memory": "forecast_model", "rank_memory": "rank_forecast"}


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"steptime.forecasting.{HOMES[name]}"), name)
