"""What `steptime run` does around the command: prepare, start, watch, conclude.

A failure of ours is a line on stderr, said when the command has ended, and never changes the
exit code.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.cli.main import attempt
from steptime.cli.output import say
from steptime.cli.prepare import EndedRun, RunPlan, end_run, prepare
from steptime.cli.profiling import check_tool
from steptime.cli.run import RunOptions
from steptime.core.executable import NotStarted, find_executable
from steptime.errors import RecipeError
from steptime.launch import user_command

if TYPE_CHECKING:
    from steptime.tune.recipe.recipe_setup import Setup

_NEVER_S = 1e6


def supervise(options: RunOptions) -> int:
    """Run the command under watch; its exit code."""
    notes: list[str] = []  # nothing is said while the command runs
    environment = user_command.user_environment()
    found = find_executable(options.command[0], environment)
    if isinstance(found, NotStarted):
        return _refuse(options, found)
    check_tool(options.profile, environment)
    setup = None if options.recipe is None else _load_setup(options, environment)
    plan = attempt(lambda: prepare(options, environment, setup), tell=notes.append)
    if plan is None and setup is not None:
        raise RecipeError(f"nothing was started, for its recipe cannot be kept: {' '.join(notes)}")
    is_live = options.is_live and _has_room_for_a_line()
    child = user_command.start(
        plan.argv if plan else options.command, plan.environment if plan else environment
    )
    if isinstance(child, NotStarted):
        return _refuse(options, child)
    _release_streams()
    if plan is None:
        end, ended = user_command.wait(child, lambda: _NEVER_S), None
    else:
        ended = _watch(plan, child, notes, is_live=is_live)
        end = ended.end
    code = user_command.shell_exit_code(end)
    try:
        attempt(lambda: _conclude(options, ended, notes, code), tell=say)
    except KeyboardInterrupt:
        say("steptime: the report was interrupted. Print it: steptime show last")
    return code


# `conclude` and the sampler bring much along that the command need not wait for at its start.


def _load_setup(options: RunOptions, environment: Mapping[str, str]) -> Setup:
    from steptime.cli.recipes import load_setup

    return load_setup(Path(options.recipe or ""), options.command, environment)


def _refuse(options: RunOptions, found: NotStarted) -> int:
    from steptime.cli.refuse import refuse

    return refuse(options, found)


def _conclude(options: RunOptions, ended: EndedRun | None, notes: list[str], code: int) -> None:
    from steptime.cli.conclude import conclude

    conclude(options, ended, notes, exit_code=code)


def _has_room_for_a_line() -> bool:
    """Whether a line can be shown; else why not is said now, before the command speaks."""
    from steptime.cli.live import why_no_line

    reason = why_no_line()
    if reason is not None:
        say(f"steptime: no live line: {reason}")
    return reason is None


def _watch(
    plan: RunPlan, child: user_command.StartedCommand, notes: list[str], *, is_live: bool
) -> EndedRun:
    """Wait for the command, and sample and watch it meanwhile."""
    from steptime.cli.beside import start_beside

    beside = start_beside(plan, child.pid, notes, is_live=is_live)
    end = user_command.wait(child, beside.tick)
    return end_run(plan, child.pid, end, num_sample_failures=beside.finish())


def _release_streams() -> None:
    """Let go of stdin and stdout: whoever is at the other end must see the command close them."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(null, stream)
    if null > 1:
        os.close(null)
