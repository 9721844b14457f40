"""Where a run comes from: the values of `command.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from steptime.core.devices.machine_condition import MachineCondition
from steptime.core.devices.machine_identity import MachineIdentity
from steptime.core.schema import SCHEMA
from steptime.measure.values.model.profiled import ProfileWish
from steptime.measure.values.observations import RecipeUse
from steptime.measure.values.stopped import StoppedRun

CELL = "%%steptime"
"""The first word of the command of a run that was one cell of a notebook."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A folder or file that a command was given, and the kind of file system it lies on."""

    path: str
    filesystem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivor:
    """A process of the command that was still there when the command had ended.

    `started` is its start in ticks since the boot; None where the machine does not say.
    """

    pid: int
    name: str
    started: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivors:
    """The processes that outlived the command, on the machine that started it.

    Attributes:
        boot: id of the machine's boot, without which a process id means nothing.
        processes: those that were there when the command had ended.
        ended_unix_s: when the last training process ended, as far as its record shows; None
            while its end was not seen.
        has_failed: whether an exception ended one of them.
        was_cut_short: whether one of them ended without its last line: it was killed, crashed, or
            left by `os._exit`.
    """

    boot: str | None = None
    processes: tuple[Survivor, ...] = ()
    ended_unix_s: float | None = None
    has_failed: bool = False
    was_cut_short: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRecord:
    """`command.json`: what was started, where, by which versions, and how it ended.

    `environment` holds values of a short list of variables that decide speed and are never
    secret; `script_hash` is over the contents of `script_files`, the text files named in `argv`;
    `places` are the working folder and what `argv` names, with their file systems.
    `peaks` are those that the user gave, by type [FLOP/s]; `price_per_h` is what an hour costs.
    `survivors` are looked for when the command has ended; None means that they were not.
    `condition` is the state of the processors when the command started, without GPUs, and
    `capabilities` their maker and what they can do in 16 bits, in the words of the kernel.
    `stopped` says why `--stop-on` ended the command.
    """

    run_id: str
    argv: tuple[str, ...]
    cwd: str | None
    environment_names: tuple[str, ...]
    started_unix_s: float
    steptime_version: str
    python_version: str
    git_revision: str | None
    machine: MachineIdentity
    parent_pid: int
    child_pid: int | None = None
    ended_unix_s: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    num_sample_failures: int | None = None
    recipe: RecipeUse | None = None
    environment: Mapping[str, str] | None = None
    script_files: tuple[str, ...] = ()
    script_hash: str | None = None
    places: tuple[Place, ...] = ()
    profile: ProfileWish | None = None
    peaks: Mapping[str, float] | None = None
    price_per_h: float | None = None
    survivors: Survivors | None = None
    condition: MachineCondition | None = None
    capabilities: tuple[str, ...] | None = None
    stopped: StoppedRun | None = None
    schema: int = SCHEMA
