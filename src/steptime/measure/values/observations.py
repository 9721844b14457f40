"""The values of a Measurement other than its phases: memory, places, errors, a recipe.

They are frozen and have plain fields like those of `measure.values.measurement`, which has the
chain itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from steptime.core.interval import Interval
from steptime.core.note import Fact
from steptime.measure.values.model.operator_time import OperatorPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Memory of one process: resident, or allocated on its device.

    Attributes:
        first_bytes: memory at the first sample of the steady window, or of the run where none
            fell into the window [bytes].
        last_bytes: memory at the last sample of the run [bytes].
        peak_bytes: the most memory so far, by the system's or the allocator's own count, and at
            the largest sample where neither says it [bytes].
        num_samples: number of samples.
        slope_bytes_per_step: trend over the steady window, or over its second half where it is
            less, from the lower beginning of both [bytes per step]; None in a short window.
        limit_bytes: the most memory that the process can have [bytes].
        minor_faults_per_step: page faults of the host process per step that need no read from
            disk.
        major_faults_per_step: page faults per step that need a read from disk.
        system_cpu_s_per_step: CPU time per step inside the operating system [s].
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
        pauses_per_step: collections per step.
        s_per_step: time of the collections per step [s].
        fraction: share of the steady window that the collections took.
    """

    pauses_per_step: float
    s_per_step: float
    fraction: float


_CELL = re.compile(r"cell \d+")


def cell_name(number: int) -> str:
    """Return what stands in the place of a file for the cell of a notebook."""
    return f"cell {number}"


def place_text(file: str, line: int, end_line: int = 0) -> str:
    """Return `train.py:31`, `train.py:22-27` or, of a notebook, `cell 3, line 5`."""
    is_one = end_line <= line
    lines = str(line) if is_one else f"{line}-{end_line}"
    if _CELL.fullmatch(file):
        return f"{file}, {'line' if is_one else 'lines'} {lines}"
    return f"{file}:{lines}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A place in the user's code, over the few steps in which frames were walked.

    Attributes:
        what: the phase or span that was entered there; `other` for the code between two markers.
        file: the file, relative to the command's folder where it lies below that folder; `cell 3`
            for the cell of a notebook that was run as In [3].
        line: the line; where `end_line` is larger, the first of the lines between two markers.
        end_line: the last line; larger than `line` for the code between two markers.
        calls_per_step: how often it ran in a step; for a span, how often in the run.
        s_per_step: wall time in a step (for a span, in the run) [s]; None where a call is only
            counted, such as a read of a tensor on the CPU.
        text: the line as it is in the file; None if it could not be read.
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
        return place_text(self.file, self.line, self.end_line)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileEvent:
    """A graph break or a recompilation, with torch's reason and the place that torch names.

    Attributes:
        reason: the reason that torch gives.
        count: how often it happened.
        where: the place that torch names.
    """

    reason: str
    count: int
    where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """What torch.compile did in the busiest rank, counted over the whole run.

    Attributes:
        num_graphs: graphs that were compiled.
        num_steps_touched: steps in which something was compiled.
        total_s: total time of compiling [s].
        breaks: graph breaks, with their reasons.
        recompiles: recompilations, with their reasons.
    """

    num_graphs: int
    num_steps_touched: int
    total_s: float
    breaks: tuple[CompileEvent, ...] = ()
    recompiles: tuple[CompileEvent, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroInput:
    """An input of the model that is mostly zeros, and that products read as a dense matrix.

    Attributes:
        rows, columns: its shape.
        zero_fraction: share of zeros among some of its elements, in one early step.
        product_s: time of the products that read it, in that step [s].
        other_s: time of other operators on tensors of its shape without gradients, such as a
            dropout of it [s].
        module: path of the module in whose call the first of these products ran; empty outside.
        module_kind: class of that module.
        file, line: the script's line from which it is called; null where it is not known.
    """

    rows: int
    columns: int
    zero_fraction: float
    product_s: float
    other_s: float = 0.0
    module: str = ""
    module_kind: str = ""
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operators:
    """Operators of torch in the model's calls and the backward of one eager step.

    Attributes:
        num: how many operators ran.
        num_tiny: how many of them took less than 20 µs.
        tiny_s: time of these tiny operators [s].
        large_s: time of all other operators [s].
        missing: why no operators were counted, as a machine word.
        num_nodes: operators that were noted for a backward call; null where that is not known.
        num_nodes_used: those of them that a backward call of the step ran through.
        zero_input: the input that is mostly zeros and whose products took longest; null where none
            was met on the CPU.
        places: lines from which long operators of the forward are called, the longest first.
    """

    num: int = 0
    num_tiny: int = 0
    tiny_s: float = 0.0
    large_s: float = 0.0
    missing: str | None = None
    num_nodes: int | None = None
    num_nodes_used: int | None = None
    zero_input: ZeroInput | None = None
    places: tuple[OperatorPlace, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldObjects:
    """An attribute of a data set that holds many Python objects, which workers copy by reading.

    Attributes:
        attribute: its name.
        holder: class of the data set.
        container: class of the attribute: `list`, `tuple`, `dict`, `set`.
        element: class of its first element; of a dict, of the first value.
        length: number of elements.
        num_objects: objects in all elements, estimated from some of them.
        bytes: their size, estimated likewise [bytes].
        file: where the class of the data set is defined; null where no module says.
        where: the line that sets it, or the call that makes the data set; null where none was
            found.
        text: that line.
    """

    attribute: str
    holder: str
    container: str
    element: str
    length: int
    num_objects: int
    bytes: int
    file: str | None = None
    where: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderUse:
    """The settings of a loader that the training reads from.

    Attributes:
        dataset: class of its data set.
        batch_size: samples per batch, if their number is fixed.
        num_workers: number of worker processes.
        pin_memory: whether the loader copies batches to pinned memory.
        persistent_workers: whether workers live from epoch to epoch.
        prefetch_factor: how many batches a worker makes ahead.
        module: module of the class of the innermost data set; null where an older guest did not
            tell, as for all that follows.
        transforms: classes of the transforms that it keeps, in their order.
        opens_images: whether Pillow opened an image in the training process.
        start_method: how worker processes are started; null without workers.
        num_cores: cores that the training process may use, by its affinity.
        began_unix_s: when the first epoch began [s since 1970].
        objects: attributes of the data set that workers copy by reading, the largest first.
    """

    dataset: str
    batch_size: int | None = None
    num_workers: int = 0
    pin_memory: bool = False
    persistent_workers: bool = False
    prefetch_factor: int | None = None
    module: str | None = None
    transforms: tuple[str, ...] = ()
    opens_images: bool = False
    start_method: str | None = None
    num_cores: int | None = None
    began_unix_s: float | None = None
    objects: tuple[HeldObjects, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitedProcess:
    """A process that a rank waited for, or one of several that it may have waited for.

    Attributes:
        pid: its id; null where only an address is known.
        command: its command line, cut to 200 characters; null where it could not be read.
        name: its name in multiprocessing; null without one.
        address: host and port, where it runs on another machine, or cannot be seen.
        num: how often the rank waited for it.
        total_s: wall time of these waits [s].
    """

    pid: int | None = None
    command: str | None = None
    name: str | None = None
    address: str | None = None
    num: int = 0
    total_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A debug switch that was on while the training ran.

    Attributes:
        name: name of the switch, as a machine word.
        where: the line that turns it on; None where the source does not show it.
    """

    name: str
    where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """Something in the script's source that looks wrong, or where to look if memory grows.

    Attributes:
        code: what looks wrong, as a machine word; `kept_tensors`, a list that gets a tensor in each
            step, is no fault by itself.
        where: file and line of the place.
        text: the line as it is in the file.
    """

    code: str
    where: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEdit:
    """An edit of the user's source that does the same.

    Attributes:
        diff: a unified diff, with paths relative to the command's folder.
        keeps: `same_numbers`; or `other_random_numbers`: the same distribution, drawn by another
            generator, so that a run with it draws other numbers.
        is_live: the lever `vectorized_loops` can make it, or a part of it, while the script runs.
    """

    diff: str
    keeps: str
    is_live: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonLoop:
    """A loop over elements in the user's own Python, in lines that were timed.

    Attributes:
        code: what it does for each element: `random_per_element`, `tensor_of_list`,
            `stack_of_list`, `sampled_one_by_one`, `growing_tensor`, `element_reads` or
            `element_writes`.
        file: the file, relative to the command's folder where it lies below that folder.
        line: the first line of the loop.
        end_line: the last line of the loop.
        text: the first line as it is in the file.
        phase: the part of a step that it is in: `other`, or `fetch` or `collate` of a loader.
        share_of_phase: share of that part's time that its lines, and so the loop, took at most.
        num_others: further loops over elements in the same lines, whose time is in that share.
        edit: an edit that does the same in one call; None where none is certain.
    """

    code: str
    file: str
    line: int
    end_line: int
    text: str
    phase: str
    share_of_phase: float
    num_others: int = 0
    edit: SourceEdit | None = None

    @property
    def place(self) -> str:
        """`train.py:31`, or `train.py:22-27` for a loop of several lines."""
        return place_text(self.file, self.line, self.end_line)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptError:
    """The exception that ended a process of the command.

    Attributes:
        type: the class of the exception.
        text: its message, shortened if it is long.
        num_updates: updates that were done before it.
        is_memory: whether it says that memory ran out.
        where: the innermost line of the user's code.
        phase: the phase in which it was raised, as far as the traceback shows.
        requested_bytes: memory that could not be allocated, if the message says so [bytes].
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
        proven: its value when the recipe was proven.
        here: its value in this run.
    """

    what: str
    proven: Fact
    here: Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverUse:
    """One lever that a run was to use.

    Attributes:
        name: name of the lever.
        settings: settings of the lever.
        is_in_guest: whether it acts inside the training process, which then reports on it.
        error: why it was off; None where it was on.
    """

    name: str
    settings: Mapping[str, str | int | float | bool]
    is_in_guest: bool
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeUse:
    """The recipe that a run trained with.

    Attributes:
        path: path of the recipe, as the user gave it.
        study_id: id of the study that proved it.
        speedup: the speedup that the study proved; None in a recipe that makes a training fit.
        levers: the levers that the recipe applies.
        differences: what differs from the proof.
        device, torch_version: device and torch of the proof, for comparison with this run's.
        training: number of the only training of the command that it is for; None: all there are.
        written_step_s: step of the command as written in the proof [s].
        proven_step_s: step with the levers in the proof [s].
        limit_bytes: the memory limit under which it ran in the proof; None where it had none
            [bytes].
    """

    path: str
    study_id: str
    speedup: Interval | None
    levers: tuple[LeverUse, ...]
    differences: tuple[Difference, ...] = ()
    device: str | None = None
    torch_version: str | None = None
    training: int | None = None
    written_step_s: float | None = None
    proven_step_s: float | None = None
    limit_bytes: int | None = None
