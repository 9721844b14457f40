"""The values of what tells whether a training does what its owner thinks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SenseLine:
    """A line of the user's code.

    Attributes:
        file: its file.
        line: its number.
        text: what it says; None where it could not be read.
    """

    file: str
    line: int
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnclearedGradients:
    """Gradients that nothing cleared since the first update.

    Attributes:
        num_updates: updates in a row that were watched, each with the gradients of those before.
        norms: the norm of one weight's gradient after 8 of them, and after 20.
    """

    num_updates: int
    norms: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRate:
    """The learning rate that an optimizer's updates used.

    Attributes:
        kind: class of the optimizer.
        first_update: its first update, from 1, over all optimizers of the thread.
        highest: the highest rate of its first group of weights.
        zero_since: the update from which on the rates of all its groups are 0, to the end.
        has_moved: whether it ever changed, or is in a tensor, which is not read.
        scheduler: class of the scheduler that advances it most; None without one.
        num_advances: how often its scheduler advanced; None without a scheduler.
        place: the line that advances it, or that made it where it never advanced.
    """

    kind: str
    first_update: int
    highest: float
    zero_since: int | None = None
    has_moved: bool = True
    scheduler: str | None = None
    num_advances: int | None = None
    place: SenseLine | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedUpdates:
    """Updates of a model in evaluation mode, after at least eight in training mode.

    Attributes:
        model: its class.
        first_update: the first of them, from 1.
        num_updates: how many were watched.
        what: what differs then: `dropout`, `batch_norm`.
        place: the call of `eval()` before; None where another way led there.
    """

    model: str
    first_update: int
    num_updates: int
    what: tuple[str, ...]
    place: SenseLine | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastLoss:
    """A loss that compares each prediction with each target.

    Attributes:
        prediction: shape of the predictions.
        target: shape of the targets; None where the loss is written by hand.
        result: shape of what was compared.
        place: the line that computes the loss, or else that of the backward call.
    """

    prediction: tuple[int, ...]
    target: tuple[int, ...] | None
    result: tuple[int, ...]
    place: SenseLine | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetUse:
    """How many targets of a classification teach anything, in the sampled updates.

    Attributes:
        num_updates: how many updates were sampled.
        targets: all targets in them.
        useful: those that the loss does not ignore.
        rows: rows of several targets; 0 where they are not known.
        rows_without: rows whose targets are all ignored.
        ignored: the target that the loss ignores.
    """

    num_updates: int
    targets: int
    useful: int
    rows: int
    rows_without: int
    ignored: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOver:
    """Batches that the end of an epoch leaves over within an update of several backward calls.

    Attributes:
        num_parts: backward calls of an update.
        left: those before the end of an epoch that no update has used.
        batches: backward calls of an epoch.
        num_epochs: epochs that ended like this.
        cleared: whether their gradients were gone before the next backward call; None if unknown.
    """

    num_parts: int
    left: int
    batches: int
    num_epochs: int
    cleared: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnequalParts:
    """Means over unlike numbers of targets, added as equals in each of the sampled updates.

    Attributes:
        num_parts: backward calls of an update.
        num_updates: updates that were sampled.
        least: targets of the smallest micro-batch that count.
        most: targets of the largest.
        ratio: of the largest to the smallest in an update, median over them.
    """

    num_parts: int
    num_updates: int
    least: int
    most: int
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptOutputs:
    """Outputs of a model that were alive at once in one evaluation: those with the most bytes.

    Attributes:
        model: its class.
        num: how many outputs, one of each call.
        bytes: what they hold together [bytes].
        shape: of the largest tensor in one of them.
    """

    model: str
    num: int
    bytes: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedWorkers:
    """What each worker of a loader does again.

    Attributes:
        data_set: the class of the data set.
        num_workers: workers that do the same.
        names: its generators whose draws repeat; empty where whole batches do.
        num_epochs: epochs in which they drew the same again; 1 where the epochs differ.
    """

    data_set: str
    num_workers: int
    names: tuple[str, ...] = ()
    num_epochs: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleNumber:
    """A number of a data set that changes in the training process, and not in its workers.

    Attributes:
        name: class and attribute.
        parent: its values in the training process, as each epoch that was compared began.
        worker: its value in the workers all that time.
    """

    name: str
    parent: tuple[int, ...]
    worker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Two ranks of a data-parallel model whose weights differ.

    Attributes:
        ranks: the two.
        first_update: the update after which they were first seen to differ; None where they
            differed before the first.
        difference: of a few weights, as a share of what training has changed in them.
        num_updates: updates that were watched.
        num_local: those before which the last backward call ran under `no_sync`.
        num_exchanges: forward calls of DDP after which gradients were to be exchanged.
    """

    ranks: tuple[int, ...]
    first_update: int | None
    difference: float
    num_updates: int
    num_local: int
    num_exchanges: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SameInputs:
    """Ranks of a data-parallel model that are given the same inputs.

    Attributes:
        ranks: these ranks.
        num_calls: forward calls that were compared.
    """

    ranks: tuple[int, ...]
    num_calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptOrder:
    """A distributed sampler that has shuffled several epochs in the same way.

    Attributes:
        num_epochs: whole epochs of a loader that trains.
        epoch: that of the sampler in all of them.
    """

    num_epochs: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sense:
    """What tells whether a training does what its owner thinks; None where nothing was seen.

    Attributes:
        uncleared: gradients that nothing clears.
        rates: learning rates and schedulers.
        num_epochs: epochs of the data set that was trained on most often, of loaders alone.
        evaluated: updates in evaluation mode.
        broadcast: a loss of two shapes.
        targets: targets that the loss ignores, where a classification was seen.
        left_over: batches that an epoch's end leaves without an update of their own.
        unequal: micro-batches of unlike numbers of targets.
        kept_outputs: outputs that an evaluation keeps, from 64 MiB on.
        repeated: random draws that repeat over workers or epochs.
        reseeded: random draws of a worker that are the same in each epoch.
        duplicated: samples that each worker yields.
        stale: a number of the data set that does not reach the workers.
        drift: weights that differ between ranks.
        same_inputs: inputs that several ranks get.
        order: an order of samples that each epoch has.
    """

    uncleared: UnclearedGradients | None = None
    rates: tuple[LearningRate, ...] = ()
    num_epochs: int = 0
    evaluated: EvaluatedUpdates | None = None
    broadcast: BroadcastLoss | None = None
    targets: TargetUse | None = None
    left_over: LeftOver | None = None
    unequal: UnequalParts | None = None
    kept_outputs: KeptOutputs | None = None
    repeated: RepeatedWorkers | None = None
    reseeded: RepeatedWorkers | None = None
    duplicated: RepeatedWorkers | None = None
    stale: StaleNumber | None = None
    drift: Drift | None = None
    same_inputs: SameInputs | None = None
    order: KeptOrder | None = None
