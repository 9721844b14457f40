"""The values of a probe of a training's layers, which `steptime run --health` asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleName:
    """A module of the user's.

    Attributes:
        name: its name inside the model, such as `layers.3.norm`; empty for the model itself.
        kind: the name of its class.
        model: the name of the class of the model that holds it.
    """

    name: str
    kind: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BracketSide:
    """Where numbers stopped being finite in one direction.

    Attributes:
        at: what was bad first: the `argument` of the model, the `input` of a module (so it was
            made between two modules), the `output` of a module whose input and weights were
            finite, a `weight` or buffer of a module when it was called, the `loss` although each
            module's output was finite, the `gradient` of a module's output, or the gradient of a
            weight although those of the outputs were finite (`weight_gradient`).
        module: the module of the first bad number; None for a loss and for the gradient of a
            weight (`bad_gradients` of the bracket names those).
        after: the last module, in the order of computation, whose number was still finite; None if
            there is none.
        is_nan: whether it was NaN and not infinite; None where `module` is None.
        file: the file with the line of the user's that called the module; None in the backward.
        line: that line.
        weights: names of the module's own weights and buffers that were bad.
        largest_weight: the largest absolute number among its own weights; None if it has none, or
            if one of them is not finite.
        largest_input: the same of its inputs, where only the output was bad.
        rows: rows of the batch whose numbers were bad, the first 32; None where a row of this
            tensor is not a sample.
        num_bad_rows: how many rows were bad.
        num_rows: rows of the batch.
        samples: indices that the sampler gave for the batch, in its order, up to 4,096; None where
            they are not known.
        samples_missing: why not: `no_loader_seen`, `several_batches` (several were fetched before
            this one was used), `no_indices` (an iterable data set), `fetched_before` the
            probe began, or `out_of_order`.
        samples_before: the same for the batch of the update before.
    """

    at: str
    module: ModuleName | None = None
    after: ModuleName | None = None
    is_nan: bool | None = None
    file: str | None = None
    line: int | None = None
    weights: tuple[str, ...] = ()
    largest_weight: float | None = None
    largest_input: float | None = None
    rows: tuple[int, ...] | None = None
    num_bad_rows: int | None = None
    num_rows: int | None = None
    samples: tuple[int, ...] | None = None
    samples_missing: str | None = None
    samples_before: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """The last finite and the first bad number of an update.

    Attributes:
        update: the update in which they were seen, from 1. Where an update broke the weights, that
            is the one after it.
        rank: the rank.
        skipped: whether a gradient scaler skipped the update.
        is_late: whether it was read from a device, some updates later: then rows, lines and weights
            are not known.
        forward: the side of the forward; None if all modules and the loss were finite.
        backward: the side of the backward; None if each gradient that was seen was finite.
        num_weights: weights of the models that were called.
        num_bad_weights: how many of them were bad when the update had ended.
        bad_weights: their names, the first eight.
        num_bad_gradients: how many weights had a bad gradient then.
        bad_gradients: their names, the first eight.
        bad_samples: indices of the samples in the bad rows; of all samples of the batch where a
            row is not a sample; None where the indices are not known.
        samples_are_rows: whether `bad_samples` are those of bad rows alone.
        samples_missing: why the samples are not known, as in `BracketSide`.
    """

    update: int
    rank: int
    skipped: bool = False
    is_late: bool = False
    forward: BracketSide | None = None
    backward: BracketSide | None = None
    num_weights: int = 0
    num_bad_weights: int = 0
    bad_weights: tuple[str, ...] = ()
    num_bad_gradients: int = 0
    bad_gradients: tuple[str, ...] = ()
    bad_samples: tuple[int, ...] | None = None
    samples_are_rows: bool = False
    samples_missing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCurve:
    """Norms of one layer: a module with weights of its own.

    Samples are taken in one update of 16 of each optimizer, later in fewer. Curves have at most 48
    of them, evenly spaced.

    Attributes:
        name: its name inside the model; empty for the model itself.
        kind: the name of its class.
        model: the name of the class of the model that holds it.
        num_parameters: elements of its weights that an optimizer updates.
        num_samples: updates that were sampled.
        gradient_norm: the norm of its gradients as the optimizer got them, the median of all
            samples; None if it never had one.
        weight_norm: the norm of its weights before the last sampled update.
        update_ratio: the norm of what an update changed over that of the weights before it, the
            median of all samples; None if the weights were zero.
        num_units: units (rows of its weights) whose gradients were watched; None for embeddings
            and for weights of one dimension.
        num_dead: units whose gradient was exactly zero in each of the last four samples.
        updates: the updates of the curves, from 1.
        gradient_norms: the norm of its gradients in each.
        weight_norms: the norm of its weights before each.
        update_ratios: the ratio of each.
    """

    name: str
    kind: str
    model: str
    num_parameters: int
    num_samples: int
    gradient_norm: float | None
    weight_norm: float | None
    update_ratio: float | None
    num_units: int | None = None
    num_dead: int | None = None
    updates: tuple[int, ...] = ()
    gradient_norms: tuple[float | None, ...] = ()
    weight_norms: tuple[float | None, ...] = ()
    update_ratios: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerHealth:
    """What a probe of the layers saw, and what it cost.

    Attributes:
        since: the first update that was probed, from 1.
        num_updates: how many were probed.
        tensors_per_update: outputs and gradients that were read in an update, on average.
        s_per_update: what the probe took of an update [s], on average.
        missing: how many tensors could not be read, by reason: `not_plain` (a subclass, a sparse or
            nested tensor, a transform, a trace), or `on_device` (another one than that of the
            thread); `device_behind`: updates whose numbers could not be fetched, because the
            device was too far behind.
        bracket: that of the numbers in `non_finite`; None where there are none, or where the
            probe did not see their beginning.
        num_brackets: how often numbers stopped being finite while the probe lasted, harmless ones
            of a gradient scaler included.
        curves: the norms by layer, in the order of the models, the first 128 of them.
        num_curves_left_out: layers beyond that.
    """

    since: int | None
    num_updates: int
    tensors_per_update: float
    s_per_update: float
    missing: Mapping[str, int]
    bracket: Bracket | None = None
    num_brackets: int = 0
    curves: tuple[LayerCurve, ...] = ()
    num_curves_left_out: int = 0
