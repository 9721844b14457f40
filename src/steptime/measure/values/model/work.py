"""How much work one step is: FLOP by pass, by operator class, by module.

In: what was counted (`steptime.count`, or the guest's line in a run folder). Out: a `Count`, which
survives a round trip through JSON. docs/explanation/counting.md says what each figure leaves out;
other modules do the counting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from steptime.core.units import format_flops, format_percent
from steptime.measure.values.model.operator_time import TimedModule, TimedOperator

CLASSES = (
    "matmul",
    "convolution",
    "attention",
    "recurrent",
    "normalization",
    "elementwise",
    "view",
    "embedding",
    "sparse",
    "communication",
    "other",
)
"""Operator classes; `sparse` covers graphs too: products with sparse matrices, sums by index."""

OPERATORS = "operators"
"""The convention of a count: every product that ran counts twice its multiply-accumulates,
attention the whole square of scores, sums by index count once, and lookups count nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassCount:
    """The work of one class of operators, all passes together.

    Attributes:
        name: `matmul`, `convolution`, `attention`, `recurrent`, `normalization`, `elementwise`,
            `view` (no arithmetic), `embedding`, `sparse` (graphs, too), `communication` (between
            ranks) or `other`.
        num: how many operators ran.
        flops: work of the class, a part of the total [FLOP].
        pointwise_flops: one FLOP for each element of operators without a product; it is never
            part of the total [FLOP].
        moved_bytes: bytes read and written if no cache helps between operators.
        time_s: time in these operators on the host [s]; None where they did not really run.
        device_time_s: time of their work on the device, including its waits for the host to start
            it [s]; None where there is no such work, or not all of it was seen.
        by_dtype: work by the type of the numbers that were multiplied [FLOP].
    """

    name: str
    num: int = 0
    flops: int = 0
    pointwise_flops: int = 0
    moved_bytes: int = 0
    time_s: float | None = None
    device_time_s: float | None = None
    by_dtype: Mapping[str, int] = field(default_factory=dict)

    @property
    def intensity(self) -> float | None:
        """Return the arithmetic intensity in FLOP per byte moved; None where nothing was moved."""
        return (self.flops + self.pointwise_flops) / self.moved_bytes if self.moved_bytes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCount:
    """Operators of one class that are alike: they share the type, and about intensity or size.

    Attributes:
        name: class of the operators.
        dtype: type of the numbers that were multiplied; None where nothing was multiplied.
        is_tiny: each operator took so little time on the host that calling it was most of it;
            False where they ran on a device.
        num: how many operators ran.
        flops: work of the group, a part of the total [FLOP].
        pointwise_flops: one FLOP for each element of operators without a product [FLOP].
        moved_bytes: bytes read and written if no cache helps between operators.
        time_s: time on the host [s].
        device_time_s: time on the device, including its waits for the host to start it [s].
    """

    name: str
    dtype: str | None = None
    is_tiny: bool = False
    num: int = 0
    flops: int = 0
    pointwise_flops: int = 0
    moved_bytes: int = 0
    time_s: float | None = None
    device_time_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleCount:
    """The work inside one module, including the modules that it calls [FLOP].

    Attributes:
        name: path of the module from the outermost one.
        kind: the class of the module.
        forward: work of the forward pass [FLOP].
        backward: work of its gradients [FLOP].
        recomputed: forward work that was done again in the backward [FLOP].
    """

    name: str
    kind: str
    forward: int = 0
    backward: int = 0
    recomputed: int = 0

    @property
    def total(self) -> int:
        """Return the work of all passes."""
        return self.forward + self.backward + self.recomputed


COUNTED_APART = (
    *("compiled", "inexact", "mode_active", "captured", "subclass", "without_gradients"),
    *("outside_modules", "no_backward_seen", "forward_elsewhere", "steps_differ", "failed"),
    "several_optimizers",
)
"""Reasons for a missing count that do not apply to an extra run, where no bit matters."""

HOW = ("one", "equal", "kinds", "each", "scaled", "range")
"""How the work of a mean step came about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepKind:
    """Steps that have the same work.

    Attributes:
        optimizers: numbers of the optimizers that made an update in such a step, in order of
            their first steps in the run.
        num_steps: how many steps of the window are of this kind.
        flops: work of such a step [FLOP].
    """

    optimizers: tuple[int, ...]
    num_steps: int
    flops: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeGroup:
    """Steps of the window whose inputs have one size, or are next to each other in size.

    Attributes:
        num_steps: how many steps these are.
        low_rows: leading sizes of the inputs of a step's calls, added up, in the step with the
            fewest.
        high_rows: the same in the step with the most.
        low_elements: elements of these inputs, in the step with the fewest.
        high_elements: the same in the step with the most.
        mean_flops: mean work of these steps [FLOP].
    """

    num_steps: int
    low_rows: int
    high_rows: int
    low_elements: int
    high_elements: int
    mean_flops: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkBasis:
    """How the work of a mean step is known, and how sure it is.

    Attributes:
        how: `one`: one update was counted, and all steps look like it. `equal`: several were
            counted, and all have the same work. `kinds`: each of a few kinds of steps was counted.
            `each`: every size of step was counted. `scaled`: the work of the other steps was
            computed from their sizes. `range`: counted steps differ in a way that sizes do not
            show, or too few were counted, so only a range is known.
        num_counted: updates that were counted.
        num_steps: steps of the window, over which the mean is taken.
        low_flops: the least work of a step of the window; for `range`, of a counted update, too
            [FLOP].
        high_flops: the most work of a step of the window; for `range`, of a counted update, too
            [FLOP].
        error_fraction: for `scaled`, the largest error for a counted update that was left out of
            the fit; for `range`, by how much counted updates of equal sizes differ at most. It is
            None for the others, and where no update could be left out.
        assumed_fraction: share of the work in steps that no counted update is like and that no fit
            covers; they are taken to be proportional to their size.
        scaled_by: what the work was computed from: `rows` (leading sizes of the inputs),
            `elements`, `squares` (of the elements of a row), `nodes` (of autograd's graph), `plain`
            (elements of calls without gradients), `updates` (a constant).
        kinds: for `kinds`, each kind of step, the most frequent first.
        sizes: the steps by the size of their inputs, the smallest first: each size, or eight
            groups of about equally many steps; empty where all have one size.
        window_s: time of all steps of the window [s].
        is_apart: the updates were counted in a contained extra run, each one as a whole.
    """

    how: str
    num_counted: int
    num_steps: int
    low_flops: int
    high_flops: int
    error_fraction: float | None = None
    assumed_fraction: float = 0.0
    scaled_by: tuple[str, ...] = ()
    kinds: tuple[StepKind, ...] = ()
    sizes: tuple[SizeGroup, ...] = ()
    window_s: float | None = None
    is_apart: bool = False

    @property
    def differs(self) -> bool:
        """Return whether steps differ in their work by more than rounding."""
        return self.high_flops - self.low_flops > _SAME * self.high_flops


_SAME = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOnDevice:
    """The work on one device.

    Attributes:
        name: name of the part, such as `NVIDIA A100-SXM4-80GB`; that of its kind, such as `cpu`,
            where it is no GPU.
        flops: work on it, a part of the total [FLOP].
    """

    name: str
    flops: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmetMatrix:
    """A trained matrix whose work is not counted, or not all of it.

    Attributes:
        name: its path from the outermost module; its shape where no module that was seen holds it.
        passes: `forward` if some of its products were not seen there, `backward` if no counted
            operator made its gradient.
        takers: the functions and operators that used it and cannot be counted.
    """

    name: str
    passes: tuple[str, ...] = ()
    takers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Completeness:
    """Whether a count is proven to be whole.

    It is, if every trained matrix met a counted operator in the forward as often as autograd went
    back through one, if counted operators made its gradient, if all operators have a formula, and
    if functions of the script's own returned nothing that no operator made.

    Attributes:
        is_complete: whether all of this holds; else the count is a lower bound.
        num_matrices: tensors of two dimensions or more that received a gradient; tied ones are one.
        num_met: those whose work is counted.
        unmet: the others, the largest first, twenty at most.
        unseen: functions of the script's own whose results no operator made: kernels that are
            launched around torch's dispatcher, NumPy.
    """

    is_complete: bool
    num_matrices: int = 0
    num_met: int = 0
    unmet: tuple[UnmetMatrix, ...] = ()
    unseen: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """The work of one forward and backward, or of the mean step of a run on one rank [FLOP].

    Attributes:
        forward: forward work, without what activation checkpointing does again [FLOP].
        backward: work of the gradients [FLOP].
        recomputed: forward work that activation checkpointing does again in the backward [FLOP].
        macs: multiply-accumulates of all passes; sums by index have none.
        classes: the work by operator class, for the classes that ran.
        groups: the work in finer groups, because what they can reach depends on type and
            intensity.
        modules: the work by module, the outermost first.
        operators: time by operator, the twelve with the most; empty for runs that an older
            version recorded.
        module_times: time by class of module, the twelve with the most; empty likewise.
        by_dtype: work by the type of the numbers that were multiplied [FLOP]; `tf32` is fp32 that
            may run as TF32.
        devices: the work by device.
        covered_fraction: share of the operators' time that has a formula (where nothing really
            ran, the share of the operators), or share of the trained matrices' elements that were
            met if that is less; None where results were made by what cannot be seen.
        completeness: whether the count is proven to be whole; null where nothing was trained, and
            for runs that an older version recorded.
        uncovered: operators without a formula, those with the most time first.
        masked_flops: attention that a causal mask makes unnecessary; it is part of the passes
            [FLOP].
        again_flops: scores that fused attention computes once more; they are part of no pass
            [FLOP].
        outside_flops: backward work of what was computed outside every module that was seen
            [FLOP].
        before_flops: backward work of a forward before the update, or in another thread [FLOP].
        rank_flops: the total of every rank if all were counted; else empty [FLOP].
        convention: the convention by which the work is counted.
        is_executed: whether this is the work that ran; else it is the work of the model as it is
            written, which a compiler may have arranged differently.
        basis: how the work of a run's mean step is known; null for `steptime.count`, and for runs
            that an older version recorded.
        clock: how operators were timed on the host: `cpu` (CPU time of their thread, where torch
            has one thread) or `wall`; null where they were not timed, or by an older version.
    """

    forward: int
    backward: int
    recomputed: int
    macs: int
    classes: tuple[ClassCount, ...] = ()
    groups: tuple[GroupCount, ...] = ()
    modules: tuple[ModuleCount, ...] = ()
    operators: tuple[TimedOperator, ...] = ()
    module_times: tuple[TimedModule, ...] = ()
    by_dtype: Mapping[str, int]
    devices: tuple[WorkOnDevice, ...] = ()
    covered_fraction: float | None = None
    completeness: Completeness | None = None
    uncovered: tuple[str, ...] = ()
    masked_flops: int = 0
    again_flops: int = 0
    outside_flops: int = 0
    before_flops: int = 0
    rank_flops: tuple[int, ...] = ()
    convention: str = OPERATORS
    is_executed: bool = True
    basis: WorkBasis | None = None
    clock: str | None = None

    def __str__(self) -> str:
        parts = {"forward": self.forward, "backward": self.backward, "again": self.recomputed}
        passes = ", ".join(f"{name} {format_flops(n)}" for name, n in parts.items() if n)
        whole = max(1, self.total)
        kinds = ", ".join(f"{one.name} {format_percent(one.flops / whole)}" for one in self.classes)
        types = ", ".join(
            f"{name} {format_percent(n / whole)}" for name, n in self.by_dtype.items()
        )
        is_whole = self.completeness is not None and self.completeness.is_complete
        proof = "every operator is counted" if is_whole else "a lower bound, or without a proof"
        return f"{format_flops(self.total)}: {passes}\nby class: {kinds}\nby type: {types}\n{proof}"

    @property
    def total(self) -> int:
        """Return the forward, backward and recomputed work."""
        return self.forward + self.backward + self.recomputed

    @property
    def is_range(self) -> bool:
        """Return whether steps differ in a way that leaves only a range; the total is a mean."""
        return self.basis is not None and self.basis.how == "range"

    @property
    def is_complete(self) -> bool | None:
        """Return whether the count is proven to be whole; None where nothing is known of it."""
        return None if self.completeness is None else self.completeness.is_complete

    @property
    def model_flops(self) -> int:
        """Return the forward and backward work, which MFU counts."""
        return self.forward + self.backward

    @property
    def rank_ratio(self) -> float:
        """Return the ranks' mean work over this rank's: stages of a pipeline may differ."""
        if not self.rank_flops or not self.total:
            return 1.0
        return sum(self.rank_flops) / len(self.rank_flops) / self.total

    @property
    def by_class(self) -> dict[str, int]:
        """Return the FLOP of every operator class; they sum to the total."""
        return dict.fromkeys(CLASSES, 0) | {one.name: one.flops for one in self.classes}

    @property
    def by_module(self) -> dict[str, int]:
        """Return the FLOP of every module, including the modules that it calls."""
        return {one.name: one.total for one in self.modules}
