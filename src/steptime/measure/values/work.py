"""How much work one step is: FLOP by pass, by operator class, by module.

In: what was counted (`steptime.count`, or the guest's line in a run folder). Out: a `Count`, which
survives a round trip through JSON. What each figure leaves out stands in
docs/explanation/counting.md; who counts, and how, is left to others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CLASSES = (
    "matmul",
    "convolution",
    "attention",
    "recurrent",
    "normalization",
    "elementwise",
    "embedding",
    "sparse",
    "other",
)
"""Operator classes; `sparse` is graphs too: products with sparse matrices, sums by index."""

OPERATORS = "operators"
"""The convention of a count: every product that ran, twice its multiply-accumulates, attention
over the whole square of scores, sums by index once, lookups nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassCount:
    """The work of one class of operators, all passes together.

    Attributes:
        name: `matmul`, `convolution`, `attention`, `recurrent`, `normalization`, `elementwise`,
            `embedding`, `sparse` (graphs, too) or `other`.
        num: operators that ran.
        flops: part of the total [FLOP].
        pointwise_flops: one for each element of what has no product; never part of the total.
        moved_bytes: read and written, if no cache helps between operators.
        time_s: in these operators on the host [s]; None where they did not really run.
        device_time_s: of their work on the device [s], with what it waited for the host to start
            it; None where there is none, or not all of it was seen.
        by_dtype: its FLOP by the type of what was multiplied.
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
        """Arithmetic intensity, FLOP a byte moved; None where nothing was moved."""
        return (self.flops + self.pointwise_flops) / self.moved_bytes if self.moved_bytes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCount:
    """Operators of one class that are alike: of one type, of about one intensity or one size.

    Attributes:
        name: its class.
        dtype: of what was multiplied; None where nothing was.
        is_tiny: each took so little time on the host that calling it was most of it; False where
            they ran on a device.
        num: operators that ran.
        flops: part of the total.
        pointwise_flops: one for each element of what has no product.
        moved_bytes: read and written, if no cache helps between operators.
        time_s: time on the host [s].
        device_time_s: time on the device, with what it waited for the host to start it [s].
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
    """The work inside one module, what it calls included [FLOP].

    Attributes:
        name: path of the module from the outermost one.
        kind: the class of the module.
        forward: work of the forward pass.
        backward: work of its gradients.
        recomputed: forward work that was done again in the backward.
    """

    name: str
    kind: str
    forward: int = 0
    backward: int = 0
    recomputed: int = 0

    @property
    def total(self) -> int:
        """All passes."""
        return self.forward + self.backward + self.recomputed


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """The work of one forward and backward, or of one step of a run on one rank [FLOP].

    Attributes:
        forward: without what activation checkpointing runs again.
        backward: work of the gradients.
        recomputed: forward work that activation checkpointing did again in the backward.
        macs: multiply-accumulates of all passes; sums by index have none.
        classes: the work by operator class, those that ran.
        groups: the same finer, for what they could reach depends on type and intensity.
        modules: the work by module, the outermost first.
        by_dtype: FLOP by the type of what was multiplied (`tf32`: fp32 that may run as such).
        covered_fraction: share of the time of operators that have a formula; where nothing
            really ran, the share of operators.
        uncovered: operators without one, those with most time first.
        masked_flops: attention that a causal mask makes needless; part of the passes.
        again_flops: scores that fused attention computes once more; part of none.
        outside_flops: backward of what was computed outside of every module that was seen.
        rank_flops: the total of every rank, where all were counted; else empty.
        convention: the convention by which it was counted.
        is_executed: whether this is what ran; else the work of the model as it is written,
            which a compiler may have arranged otherwise.
    """

    forward: int
    backward: int
    recomputed: int
    macs: int
    classes: tuple[ClassCount, ...] = ()
    groups: tuple[GroupCount, ...] = ()
    modules: tuple[ModuleCount, ...] = ()
    by_dtype: Mapping[str, int]
    covered_fraction: float | None = None
    uncovered: tuple[str, ...] = ()
    masked_flops: int = 0
    again_flops: int = 0
    outside_flops: int = 0
    rank_flops: tuple[int, ...] = ()
    convention: str = OPERATORS
    is_executed: bool = True

    @property
    def total(self) -> int:
        """Forward, backward and recomputed."""
        return self.forward + self.backward + self.recomputed

    @property
    def model_flops(self) -> int:
        """Forward and backward: what MFU counts."""
        return self.forward + self.backward

    @property
    def rank_ratio(self) -> float:
        """The mean over ranks over this rank's work: stages of a pipeline differ, say."""
        if not self.rank_flops or not self.total:
            return 1.0
        return sum(self.rank_flops) / len(self.rank_flops) / self.total

    @property
    def by_class(self) -> dict[str, int]:
        """FLOP of every operator class; they sum to the total."""
        return dict.fromkeys(CLASSES, 0) | {one.name: one.flops for one in self.classes}

    @property
    def bytes_by_class(self) -> dict[str, int]:
        """Bytes moved by every operator class."""
        return dict.fromkeys(CLASSES, 0) | {one.name: one.moved_bytes for one in self.classes}

    @property
    def by_module(self) -> dict[str, int]:
        """FLOP of every module, what it calls included."""
        return {one.name: one.total for one in self.modules}
