"""Chooses the mode of a process from the plan that it was told."""

from __future__ import annotations

from .mode import Bystander, GuestMode, Unread


def choose_mode(run: str, plan: str | None, shown: int | None = None) -> GuestMode:
    """Return the mode of this process; it observes where there is no plan.

    Args:
        run: the folder of the run or trial.
        plan: its text or its path; None without one.
        shown: the address of the memory in which experiments are shown.
    """
    if plan is None:
        return GuestMode()
    try:
        return _planned(plan, run, shown)
    except Exception as error:
        return Unread(error)


def _planned(told: str, run: str, shown: int | None) -> GuestMode:
    """Return the mode that a plan asks for; what it needs is loaded only here."""
    from ..trial.plan_scope import is_meant
    from ..trial.trial_plan import read_plan
    from .alone import BenchMode, ForecastMode, OrderMode
    from .count import CountMode
    from .levers import WithLevers

    plan = read_plan(told, run if shown is None else shown)
    if not is_meant(plan.only, run):
        return Bystander(records_calls=plan.is_recipe)
    if plan.bench is not None:
        return BenchMode(plan.bench)
    if plan.order is not None:
        return OrderMode(plan.order)
    if plan.forecast is not None:
        return ForecastMode(plan.forecast)
    if plan.is_counting:
        return CountMode(sees_products=plan.sees_products)
    return WithLevers(plan)
