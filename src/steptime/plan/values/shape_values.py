"""The products of a step with their sizes, and widths that would suit the device better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from steptime.core.interval import Interval

Size = int | bool | tuple[int | bool | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ProductPlace:
    """Where in the script a product is.

    Attributes:
        file: path of the file.
        line: its number.
    """

    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One product, convolution, attention or recurrent layer, as often as it ran alike.

    Attributes:
        kind: `matmul`, `convolution`, `attention` or `recurrent`.
        which: `forward`, `backward` or `recomputed`.
        module: path of the module that ran it; empty outside of modules.
        module_kind: class of that module.
        place: file and line in the script; null where none of it was running.
        weight: name of the parameter that it meets, or whose gradient it is; null without one.
        dtype: type of the numbers, as torch writes it.
        device: kind of the device: `cpu`, `cuda`.
        sizes: of a matmul m, n, inner, batch, `turned` (columns of a factor lie together) and
            `axes` (which axis of the weight m, n and inner are); of others by their own names.
        num: how often it ran in the updates that were seen.
        order: its place in the order in which products first ran.
        time_s: time of all of them on the processor, with the cost of watching [s]; null on a
            device.
    """

    kind: str
    which: str
    module: str
    module_kind: str
    place: ProductPlace | None
    weight: str | None
    dtype: str
    device: str
    sizes: Mapping[str, Size]
    num: int
    order: int = 0
    time_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSeen:
    """A parameter that some product meets: its name, its module's class and its sizes.

    Attributes:
        name: path of the parameter.
        module_kind: class of the module that holds it.
        shape: its sizes.
        is_embedding: whether its rows are looked up.
    """

    name: str
    module_kind: str
    shape: tuple[int, ...]
    is_embedding: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSeen:
    """What torch says of a device that computed products.

    Attributes:
        kind: `cpu` or `cuda`.
        name: name of the part; null for a processor.
        capability: vector instructions that torch uses on a processor; compute capability of a GPU.
        num_multiprocessors: of a GPU.
        memory_bytes: of a GPU.
    """

    kind: str
    name: str | None = None
    capability: str | None = None
    num_multiprocessors: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenProducts:
    """The products of a round of updates.

    Attributes:
        updates: number of updates that they are of.
        num_threads: threads that torch computes with.
        num_left_out: kinds of products beyond those listed, the shortest ones.
        products: the longest first.
        weights: parameters that they meet.
        devices: where they ran.
    """

    updates: int
    num_threads: int
    num_left_out: int = 0
    products: tuple[Product, ...] = ()
    weights: tuple[WeightSeen, ...] = ()
    devices: tuple[DeviceSeen, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredGain:
    """What timing the operators alone says of one proposal.

    Attributes:
        time_ratio: time with the new width over that of the old one, per round in turns.
        gain: rate of work with the new width over that of the old one.
        num_rounds: rounds of old, new, old, new.
        clock: `cpu` (time of the processor) or `wall`.
        missing: why there is none; null if there is.
    """

    time_ratio: Interval | None = None
    gain: float | None = None
    num_rounds: int = 0
    clock: str | None = None
    missing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Another size of one width of the model.

    Attributes:
        role: `hidden`, `inner`, `gated` (of a gated MLP, such as SwiGLU), `vocabulary`, `outputs`,
            `channels`, `recurrent` or `heads`.
        old: the size now; of `heads` their number.
        new: the size proposed.
        reason: `alignment`, `waves` or `head_size`: what the old size fails.
        unit: the multiple that the new size is of.
        predicted_gain: rate of the work of these operators with the new size over the old one.
        predicted_time_ratio: their time with the new size over that with the old one.
        share: their part of the predicted time of all products of a step, a fraction.
        more_parameters: weights that it adds; negative where it removes some.
        num_products: operators of a step that change.
        weights: names of the parameters that change, the first ones.
        places: files and lines where these operators run, the first ones.
        facts: numbers for the sentence: `coefficient` of a gated MLP, `head_size` before and after.
        measured: what timing them says; null if that was not asked for.
    """

    role: str
    old: int
    new: int
    reason: str
    unit: int
    predicted_gain: float
    predicted_time_ratio: float
    share: float
    more_parameters: int
    num_products: int
    weights: tuple[str, ...] = ()
    places: tuple[ProductPlace, ...] = ()
    facts: Mapping[str, float] = field(default_factory=dict)
    measured: MeasuredGain | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptWidth:
    """A width for which nothing better is near, and why.

    Attributes:
        role: as in a proposal, or `data` (given by the data), `derived` (a multiple of another).
        size: the size.
        reason: `aligned`, `no_gain`, `given`, `follows`, or `unknown_device`.
    """

    role: str
    size: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeAdvice:
    """The products of a step, and the widths that would suit the device better.

    Attributes:
        device: the device for which widths are proposed.
        rule: the name of the rule by which times are predicted on it; null for an unknown device.
        seen: the products.
        proposals: the best first.
        kept: widths without a proposal.
    """

    device: DeviceSeen
    rule: str | None
    seen: SeenProducts
    proposals: tuple[Proposal, ...] = ()
    kept: tuple[KeptWidth, ...] = ()
