"""Values that a Measurement is made of beside its phases: memory, places, errors, a recipe.

Frozen and made of plain fields like those of `measure.values.measurement`, which has the chain
itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from steptime.core.interval import Interval
from steptime.core.note import Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Memory of one process: resident, or allocated on its device.

    Attributes:
        first_bytes: at the first sample of the steady window, or of the run where none fell
            into the window.
        last_bytes: at the last sample of the run [bytes].
        peak_bytes: the largest sample [bytes].
        num_samples: samples that were taken.
        slope_bytes_per_step: trend over the steady window; None where it is too short.
        limit_bytes: what there is at most.
        minor_faults_per_step: page faults a step that need no read from disk, of the host
            process.
        major_faults_per_step: page faults a step that need a read from disk.
        system_cpu_s_per_step: CPU time a step inside the operating system [s].
    """

    first_bytes: int
    last_bytes: int
    peak_bytes: int
    num_samples: int
    slope_bytes_per_step: Interval | None = None
    limit_bytes: int | None = None
    minor_faults_per_step: float | None = None
    major_faults_per_step: float | None = None
    system_cpu_s_per_step: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GcPauses:
    """What Python's collections of garbage took of one rank's steady window.

    Attributes:
        pauses_per_step: collections a step.
        s_per_step: their time a step [s].
        fraction: their share of the steady window.
    """

    pauses_per_step: float
    s_per_step: float
    fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A place in the user's code, over the few steps in which frames were walked.

    Attributes:
        what: the phase or span that was entered there; `other` for the code between two markers.
        file: relative to the folder of the command where it lies below it.
        line: its line; with `end_line` above it, the lines between two markers.
        end_line: last line; above `line` for the code between two markers.
        calls_per_step: how often it ran in a step; for a span, how often in the run.
        s_per_step: wall time in a step (for a span, in the run) [s]; None where a call is only
            counted, as a read of a tensor on the CPU.
        text: the line as it stands in the file, None if it could not be read.
    """

    what: str
    file: str
    line: int
    end_line: int
    calls_per_step: float
    s_per_step: float | None = None
    text: str | None = None

    @property
    def place(self) -> str:
        """`train.py:31`, or `train.py:22-27` for the code between two markers."""
        lines = str(self.line) if self.end_line <= self.line else f"{self.line}-{self.end_line}"
        return f"{self.file}:{lines}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileEvent:
    """A graph break, or a compilation made again: torch's reason, and the place it names.

    Attributes:
        reason: torch's reason.
        count: how often.
        where: the place torch names.
    """

    reason: str
    count: int
    where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """What torch.compile did in the busiest rank; counts of the whole run.

    Attributes:
        num_graphs: graphs that were compiled.
        num_steps_touched: steps in which something was compiled.
        total_s: time of compiling [s].
        breaks: graph breaks.
        recompiles: compilations made again.
    """

    num_graphs: int
    num_steps_touched: int
    total_s: float
    breaks: tuple[CompileEvent, ...] = ()
    recompiles: tuple[CompileEvent, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operators:
    """Operators of torch in the model's calls and the backward of one eager step.

    Attributes:
        num: how many operators ran.
        num_tiny: how many of them took under 20 µs.
        tiny_s: time of the tiny ones [s].
        large_s: time of the others [s].
        missing: why none were counted, a machine word.
    """

    num: int = 0
    num_tiny: int = 0
    tiny_s: float = 0.0
    large_s: float = 0.0
    missing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderUse:
    """How a loader that training reads from is set.

    Attributes:
        dataset: the class of its data set.
        batch_size: samples of a batch, where it is fixed.
        num_workers: worker processes.
        pin_memory: batches go to pinned memory.
        persistent_workers: workers live from epoch to epoch.
        prefetch_factor: batches that a worker makes ahead.
    """

    dataset: str
    batch_size: int | None = None
    num_workers: int = 0
    pin_memory: bool = False
    persistent_workers: bool = False
    prefetch_factor: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A debug switch that was on while the training ran.

    Attributes:
        name: which switch, a machine word.
        where: the line that turns it on; None where the source does not show it.
    """

    name: str
    where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """Something in the script's source that looks wrong.

    Attributes:
        code: what it is, a machine word.
        where: file and line.
        text: the line as it is in the file.
    """

    code: str
    where: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptError:
    """The exception that ended a process of the command.

    Attributes:
        type: the class of the exception.
        text: its message, cut to a length.
        num_updates: updates that were done.
        is_memory: it says that memory ran out.
        where: innermost line of the user's code.
        phase: the phase it came from, as far as the traceback shows.
        requested_bytes: what was asked for in vain, if the message says so.
    """

    type: str
    text: str
    num_updates: int
    is_memory: bool = False
    where: str | None = None
    phase: str | None = None
    requested_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Something that is not as it was when the recipe was proven.

    Attributes:
        what: `command`, `script`, `cpu`, `num_cores`, `memory_bytes`, `device` or
            `torch_version`.
        proven: as in the proof.
        here: as in this run.
    """

    what: str
    proven: Fact
    here: Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverUse:
    """One lever that a run was told to use.

    Attributes:
        name: the lever.
        settings: its settings.
        is_in_guest: it acts inside the training process, which reports on it.
        error: why it was off after all; None where it was on.
    """

    name: str
    settings: Mapping[str, str | int | float | bool]
    is_in_guest: bool
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeUse:
    """The recipe that a run trained with.

    Attributes:
        path: as the user named it.
        study_id: the study that proved it.
        speedup: the speedup that was proven.
        levers: the levers that it puts on.
        differences: what is not as in the proof.
        device, torch_version: of the proof, to be compared with what the run says.
    """

    path: str
    study_id: str
    speedup: Interval
    levers: tuple[LeverUse, ...]
    differences: tuple[Difference, ...] = ()
    device: str | None = None
    torch_version: str | None = None
