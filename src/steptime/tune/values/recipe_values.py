"""A recipe: what was proven to be faster, or to fit, for which command, on which machine.

The file that people keep is TOML; `tune.recipe.recipe_file` writes and reads it.
"""

from __future__ import annotations

from dataclasses import dataclass

from steptime.core.devices.machine_identity import MachineIdentity
from steptime.core.interval import Interval
from steptime.core.schema import SCHEMA
from steptime.tune.values.site_values import EditSites
from steptime.tune.values.study_values import State, TrainingScope
from steptime.verify.values import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The command of a proof, and the files named in it.

    `hash` is over the names and contents of `files`; None where the command names no file.
    """

    command: tuple[str, ...]
    files: tuple[str, ...] = ()
    hash: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What was measured and judged.

    Attributes:
        speedup: of a step, None in a recipe that makes a training fit; `loop_speedup` of the whole
            loop, where it was observed.
        limit_bytes: the memory limit under which it ran, in a recipe that makes a training fit.
        peak_bytes: what it needed there [bytes].
        level: the highest that was reached, L0 to L3.
        seeds: what trainings over seeds said, if they were made; `seeds_n` of them a side, with
            `seeds_margin` in the metric's unit.
        device, torch_version: what it was measured on, as the training itself said.
    """

    study_id: str
    speedup: Interval | None
    noise_floor: float | None
    quality: Outcome
    level: str | None
    baseline_step_s: float | None = None
    tuned_step_s: float | None = None
    device: str | None = None
    torch_version: str | None = None
    loop_speedup: Interval | None = None
    limit_bytes: int | None = None
    peak_bytes: int | None = None
    seeds: Outcome | None = None
    seeds_n: int | None = None
    seeds_margin: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Levers with their settings, and the evidence for them.

    Attributes:
        version: of the Steptime that wrote it.
        date: when it was proven, as ISO 8601 in UTC.
        script: for what.
        machine: on what.
        levers: what is on, in the order in which it was added.
        proof: the evidence.
        training: the only training of the command that the levers are for; None: all there are.
        sites: where in the source stands what levers change; recipes of older versions have none.
    """

    version: str
    date: str
    script: Script
    machine: MachineIdentity
    levers: State
    proof: Proof
    training: TrainingScope | None = None
    sites: EditSites | None = None
    schema: int = SCHEMA
