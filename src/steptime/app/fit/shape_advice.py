"""Proposes widths of a model that suit its device better, from one round of its real steps.

In: a command. Out: a `ShapeAdvice`; with `measure`, each proposal has what timing its operators
alone says. The command runs in a contained child until its second step is seen.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from steptime.app.stored.page_file import try_page, write_page_file
from steptime.core.store import create_run, store_in
from steptime.errors import NotFoundError
from steptime.launch.user_command import user_environment
from steptime.machine.ceilings import find_python
from steptime.machine.inventory import HERE
from steptime.machine.operator_turns import OperatorPair, time_operators
from steptime.machine.processors import read_cpu
from steptime.plan.device_rules import DeviceRule, find_rule, work_of
from steptime.plan.shapes import Change, advise_shapes, changes_of_proposal
from steptime.plan.values.shape_values import (
    DeviceSeen,
    MeasuredGain,
    Proposal,
    SeenProducts,
    ShapeAdvice,
)
from steptime.tune.trials.children.products_child import products_in_child

PAGE = "shapes.html"

MAX_MEASURED = 6
"""Proposals that are timed, the best ones."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeOptions:
    """What was asked for; with `measure`, operators of the best proposals get `budget_s` [s]."""

    command: tuple[str, ...]
    store: Path
    measure: bool = False
    budget_s: float = 60.0
    share_network: bool = False
    allow_unsafe: bool = False


def fit_shapes(asked: ShapeOptions, *, tell: Tell) -> ShapeAdvice:
    """Return the widths that would suit the device better.

    Raises:
        NotStartedError: there is no such command.
        ContainmentError: nothing here keeps the child from doing harm.
        ScriptFailedError: the command ended before its second step.
    """
    environment = user_environment()
    tell("the command as written, until its second step has shown its matmuls")
    seen = _see(asked, environment)
    device = _main_device(seen)
    rule = rule_of(device)
    advice = advise_shapes(seen, device, rule)
    if not asked.measure or rule is None or not advice.proposals:
        return advice
    tell(f"the operators of {min(MAX_MEASURED, len(advice.proposals))} proposals alone, in turns")
    return measured(
        advice,
        python=python_of(asked.command, environment),
        environment=environment,
        budget_s=asked.budget_s,
    )


def _see(asked: ShapeOptions, environment: Mapping[str, str]) -> SeenProducts:
    store = store_in(asked.store)
    store.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="shapes-", dir=store))
    try:
        return products_in_child(
            asked.command,
            environment,
            folder=folder / "child",
            cwd=Path.cwd(),
            share_network=asked.share_network,
            allow_unsafe=asked.allow_unsafe,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _main_device(seen: SeenProducts) -> DeviceSeen:
    """Return the device that does most of the products' work."""
    work: dict[str, float] = {}
    for one in seen.products:
        work[one.device] = work.get(one.device, 0.0) + work_of(one.kind, one.sizes) * one.num
    kind = max(work, key=lambda name: work[name], default="cpu")
    return next((one for one in seen.devices if one.kind == kind), DeviceSeen(kind=kind))


def rule_of(device: DeviceSeen) -> DeviceRule | None:
    """Return how a device of this machine computes; None where nothing is known of it."""
    cpu = read_cpu(HERE, num_usable=1)
    own = next((one.size_bytes for one in cpu.caches if one.level == 2), None)
    return find_rule(device, model=cpu.model, flags=cpu.flags, cache_bytes=own)


def python_of(command: tuple[str, ...], environment: Mapping[str, str]) -> str:
    """Return the interpreter of a command, or the one on the PATH.

    Raises:
        NotFoundError: there is none.
    """
    name = os.path.basename(command[0])
    if name.startswith("python"):
        try:
            return find_python(command[0], environment)
        except NotFoundError:
            return find_python(None, environment)
    return find_python(None, environment)


def write_shapes_page(advice: ShapeAdvice, asked: ShapeOptions) -> Path | None:
    """Write the page of an advice into a folder of its own."""

    def write() -> Path:
        from steptime.report.blocks.fit.shapes_report import shapes_report

        run = create_run(asked.store, started_unix_s=time.time(), kind="plans")
        return write_page_file(shapes_report(advice, command=asked.command), run.folder / PAGE)

    return try_page(write)


# -- what timing the operators says


def measured(
    advice: ShapeAdvice, *, python: str, environment: Mapping[str, str], budget_s: float
) -> ShapeAdvice:
    """Return the advice with a `MeasuredGain` at each of its best proposals."""
    best = advice.proposals[:MAX_MEASURED]
    gains = time_operators(
        python,
        [pair_of(one, advice.seen) for one in best],
        device=advice.device.kind,
        num_threads=advice.seen.num_threads,
        budget_s=budget_s,
        environment=environment,
    )
    timed = [replace(one, measured=gain) for one, gain in zip(best, gains, strict=True)]
    rest = [
        replace(one, measured=MeasuredGain(missing="not_among_the_best"))
        for one in advice.proposals[MAX_MEASURED:]
    ]
    return replace(advice, proposals=(*timed, *rest))


def pair_of(proposal: Proposal, seen: SeenProducts) -> OperatorPair:
    """Return the operators that a proposal changes, those of equal sizes once."""
    alike: dict[str, tuple[Change, int]] = {}
    for change in changes_of_proposal(proposal, seen):
        one = change.product
        key = repr((one.kind, one.which == "forward", one.dtype, sorted(one.sizes.items())))
        known = alike.get(key)
        alike[key] = (change, one.num + (0 if known is None else known[1]))
    before, after = [], []
    work = new_work = 0.0
    for change, num in alike.values():
        one = change.product
        common = {"kind": one.kind, "which": one.which, "dtype": one.dtype, "num": num}
        before.append({**common, "sizes": dict(one.sizes)})
        after.append({**common, "sizes": dict(change.sizes)})
        work += work_of(one.kind, one.sizes) * num
        new_work += work_of(one.kind, change.sizes) * num
    return OperatorPair(before=before, after=after, work_ratio=new_work / work if work else 1.0)
