"""The first third of a run: everything that is done before the command starts.

In: what to observe. Out: a `RunPlan`, which includes the run's folder with `command.json` in it. If
there is an error instead, nothing was started.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steptime.app.run.attempt import attempt
from steptime.app.run.stop_wish import StopWish
from steptime.core.executable import NotStarted, find_executable, need_executable
from steptime.core.kernel_files import need_proc
from steptime.core.store import Run, create_run, write_text, write_value
from steptime.errors import RecipeError, UsageError
from steptime.launch.origin import describe_run
from steptime.launch.user_command import observed_environment
from steptime.launch.values import CommandRecord
from steptime.measure.values.model.profiled import FOLDER, NSYS, ProfileWish

if TYPE_CHECKING:
    from steptime.tune.recipe.recipe_setup import Setup

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What to observe, and how closely.

    `looks_at_layers` asks for the first number that is not finite; `peaks` are those of the user,
    by type [FLOP/s]. `checksums` is the level of the checksums to keep, 0 for none.
    """

    command: tuple[str, ...]
    store: Path = Path(".")
    recipe: Path | None = None
    counts: bool = False
    profile: ProfileWish | None = None
    looks_at_layers: bool = False
    peaks: Mapping[str, float] = field(default_factory=dict)
    price_per_h: float | None = None
    stop: StopWish = field(default_factory=StopWish)
    checksums: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What is started, in which environment; `notes` are sentences about what went wrong.

    `command` is the user's own; `argv` may have a profiler around it.

    `run` and `record`, its `command.json` so far, are None if no folder could be made: then the
    command still runs, unobserved.
    """

    command: tuple[str, ...]
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    run: Run | None = None
    record: CommandRecord | None = None
    notes: tuple[str, ...] = ()
    stop: StopWish = field(default_factory=StopWish)


def prepare(options: RunOptions, environment: Mapping[str, str], *, tell: Tell) -> RunPlan:
    """Make the run's folder with what the command's processes need, including a recipe's plan.

    Raises:
        NotStartedError: there is no such command.
        UsageError: the profiler that is wanted is not installed.
        RecipeError: the recipe cannot be used.
    """
    need_executable(options.command, environment)
    _check_profiler(options.profile, environment)
    setup = None if options.recipe is None else _load_recipe(options, environment, tell)
    notes: list[str] = []
    with attempt(notes.append):
        return _observed_plan(options, environment, setup)
    if setup is not None:
        raise RecipeError(
            f"nothing was started, because its recipe cannot be kept: {' '.join(notes)}"
        )
    return RunPlan(
        command=options.command,
        argv=options.command,
        environment=environment,
        notes=tuple(notes),
    )


def _observed_plan(
    options: RunOptions, environment: Mapping[str, str], setup: Setup | None
) -> RunPlan:
    need_proc()
    started_unix_s = time.time()
    run = create_run(options.store, started_unix_s=started_unix_s)
    record = describe_run(
        run.run_id, options.command, environment=environment, started_unix_s=started_unix_s
    )
    recipe = None if setup is None else setup.use
    record = replace(
        record,
        profile=options.profile,
        recipe=recipe,
        peaks=dict(options.peaks) or None,
        price_per_h=options.price_per_h,
    )
    write_value(run, "command.json", record)
    # The variables of a recipe come first: the shims stand before whatever it puts on PATH.
    wanted = environment if setup is None else _with_variables(environment, setup)
    observed = observed_environment(wanted, run.folder)
    if setup is not None and setup.plan is not None:
        observed["STEPTIME_PLAN"] = _write_plan(run, setup.plan)
    if options.profile is not None:
        (run.folder / FOLDER).mkdir()
        observed = {**observed, "STEPTIME_PROFILE": options.profile.variable}
    if options.looks_at_layers:
        observed = {**observed, "STEPTIME_HEALTH": "1"}
    argv = _inside_profiler(options, run.folder / FOLDER)
    if options.checksums:
        observed = {**observed, "STEPTIME_CHECKSUMS": str(options.checksums)}
    return RunPlan(
        command=options.command,
        argv=argv,
        environment=observed,
        run=run,
        record=record,
        stop=options.stop,
    )


def _load_recipe(options: RunOptions, environment: Mapping[str, str], tell: Tell) -> Setup:
    from steptime.app.run.recipe_loading import (
        load_setup,  # imported here, because few runs need it
    )

    return load_setup(options.recipe or Path(), options.command, environment, tell=tell)


def _write_plan(run: Run, plan: Mapping[str, Any]) -> str:
    """Write the guest's `plan.json` and return its path."""
    path = run.folder / "plan.json"
    write_text(path, json.dumps(plan) + "\n")
    return str(path)


def _with_variables(environment: Mapping[str, str], setup: Setup) -> dict[str, str]:
    from steptime.tune.trials.trial_setting import add_variables  # few runs need it

    return add_variables(environment, setup.variables)


def _check_profiler(wish: ProfileWish | None, environment: Mapping[str, str]) -> None:
    """Check, before anything starts, that a system profiler is there if it is wanted."""
    if wish is None or wish.tool != NSYS:
        return
    if isinstance(find_executable(NSYS, environment), NotStarted):
        raise UsageError(
            f"--nsys needs `{NSYS}`, which is not on PATH.",
            hint="Install Nsight Systems: the package `nsight-systems-cli` of NVIDIA's "
            "repository, or the CUDA toolkit's `cuda-nsight-systems-*`.",
        )


def _inside_profiler(options: RunOptions, folder: Path) -> tuple[str, ...]:
    """Return the command as it is started: inside a system profiler, if one is wanted."""
    if options.profile is None or options.profile.tool != NSYS:
        return options.command
    return (
        *("nsys", "profile", f"--output={folder / NSYS}", "--force-overwrite=true"),
        # The guest starts and stops the collection; the command continues to its end.
        *("--capture-range=cudaProfilerApi", "--capture-range-end=stop", "--kill=none"),
        *("--trace=cuda,nvtx,cudnn,cublas,osrt", "--sample=none", "--cpuctxsw=none"),
        *options.command,
    )
