"""The values of a run's whole time: what trained, and what went on beside the steps."""

from __future__ import annotations

from dataclasses import dataclass

from steptime.core.interval import Interval

USEFUL = "steps"
"""The part that trained."""

WALL_PARTS = (
    "interpreter",
    "imports",
    "data_set",
    "model",
    "loading",
    "setup",
    "first_batch",
    "compile",
    "warmup",
    USEFUL,
    "epoch_start",
    "evaluation",
    "checkpoint",
    "logging",
    "stalled",
    "wasted_updates",
    "skipped_updates",
    "earlier_starts",
    "unseen",
    "after_steps",
    "exit",
)
"""All parts, roughly in the order of time."""

FIRST_MINUTE = WALL_PARTS[: WALL_PARTS.index(USEFUL)]
"""The parts that pass until a training makes its usual steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WallPart:
    """A part of the wall time of a run.

    Attributes:
        name: `interpreter` (until Python runs, with any launcher), `imports`, `data_set`, `model`,
            `loading` (of a checkpoint), `setup` (what else came before the first step),
            `first_batch`, `compile`, `warmup` (what the steps before the steady window took beyond
            as many steady ones), `steps` (those that trained), `epoch_start`, `evaluation`,
            `checkpoint`, `logging` (TensorBoard, W&B), `stalled` (beyond a usual step),
            `wasted_updates` (while numbers were not finite), `skipped_updates` (by a gradient
            scaler), `earlier_starts` (of a launcher that started the training again), `unseen`
            (between steps that the record lacks), `after_steps` (from the last step until the
            script left) or `exit`.
        total_s: its wall time [s].
        num: how often it happened, of `first_batch` how many batches it was; null where it is one
            stretch, or is not counted.
        where: the line of the script that took most of it; null where none is known.
    """

    name: str
    total_s: float
    num: int | None = None
    where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """What writing checkpoints was spent on, over the whole run of one rank.

    Attributes:
        num: how many were written while the script waited.
        total_s: their wall time [s]; the five parts sum to it.
        gather_s: agreement and exchange between the ranks, before anything is written [s].
        copy_s: copies of the weights, mostly from the device to the host [s].
        serialize_s: making a pickle of everything but the numbers [s].
        write_s: writing into the file, up to its end; what the system keeps in memory and writes
            later is not in it [s].
        other_s: what is none of these: a format whose parts cannot be seen [s].
        num_bytes: bytes that were handed to the file; null where no library told them.
        num_beside: how many a thread wrote while the steps went on.
        beside_s: wall time of those [s].
        num_steps_beside: steps that fell into that time.
        slowdown: median time of these steps over that of the others, with its interval; null where
            there are fewer than five of the one or twenty of the other.
    """

    num: int
    total_s: float
    gather_s: float
    copy_s: float
    serialize_s: float
    write_s: float
    other_s: float
    num_bytes: int | None = None
    num_beside: int = 0
    beside_s: float = 0.0
    num_steps_beside: int = 0
    slowdown: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WallTime:
    """The wall time of a run, by what it was spent on, in the rank with the most updates.

    Attributes:
        total_s: wall time of the command, from its start to its end [s]; of a command with several
            trainings, that of the training's process.
        parts: the parts in the order of time, without those that took none; they sum to `total_s`.
        is_open: whether no end is known, so that this is the time until the last update.
        checkpoints: what writing checkpoints was spent on; null where none was seen.
        energy_j: what the devices drew in that time, by their own counters [J]; null where a device
            tells none, and where several trainings share them.
    """

    total_s: float
    parts: tuple[WallPart, ...]
    is_open: bool = False
    checkpoints: Checkpoints | None = None
    energy_j: float | None = None

    def of(self, name: str) -> float:
        """Return the time of a part [s]; 0 where it took none."""
        return sum(part.total_s for part in self.parts if part.name == name)

    @property
    def goodput_fraction(self) -> float | None:
        """The time of the steps that trained over the whole; None where no time passed."""
        return self.of(USEFUL) / self.total_s if self.total_s > 0 else None
