"""Ailments of trainings that run at full speed and learn something else: what the hooks saw.

They are facts of the script, and none is a bottleneck. Where a sound training does the same, the
rule gives no finding; docs/explanation/diagnosis.md has the reasons.
"""

from __future__ import annotations

from dataclasses import replace

from steptime.diagnose.ailments.health.idle_weights import UNREGISTERED, UNUSED_GRADIENT
from steptime.diagnose.ailments.scale import Threshold
from steptime.diagnose.ailments.sense import on_ranks, taught
from steptime.diagnose.ailments.sense.sense_rows import at_phase, placed, sense_of, sense_row
from steptime.diagnose.ailments.signals import count, share
from steptime.diagnose.values.finding import Finding, Severity
from steptime.measure.values.measurement import Measurement

MIN_AT_ZERO = Threshold(
    name="MIN_AT_ZERO",
    value=0.1,
    why="of all updates, at the end of the run: a schedule that ends at zero is there in its last",
)
FEW_UPDATES = Threshold(
    name="FEW_UPDATES", value=20, why="updates: the end of a short schedule has fewer"
)
MOST_AT_ZERO = Threshold(
    name="MOST_AT_ZERO", value=0.5, why="of all updates: most of the run was for nothing"
)
MIN_EVALUATED = Threshold(
    name="MIN_EVALUATED",
    value=0.05,
    why="of the updates since the first: fewer may be a second pass that is meant",
)
UNMOVED_UPDATES = Threshold(
    name="UNMOVED_UPDATES", value=200, why="updates: a trial of a script may be shorter"
)
UNMOVED_EPOCHS = Threshold(
    name="UNMOVED_EPOCHS",
    value=3,
    why="epochs: a scheduler that is stepped after each would have moved by the third",
)
MIN_EPOCH = Threshold(
    name="MIN_EPOCH",
    value=5,
    why="updates per epoch: a script that asks a new iterator for each batch has no epochs",
)
_MADE_TO_WAIT = ("SWALR",)
"""Schedulers that are stepped in the last part of a training alone."""

_ADVANCES = 1.5
"""Advances per update: a schedule per epoch has less than one, one per update has one."""

_SCALED_BY_RATE = (
    *("SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop"),
    *("ASGD", "Adafactor", "Muon", "SparseAdam"),
)
"""Optimizers of torch whose whole step, weight decay included, is a multiple of the rate."""


def find_uncleared_gradients(measurement: Measurement) -> Finding | None:
    """No bottleneck: nothing clears the gradients, so that each update uses the sum of all."""
    found = sense_of(measurement).uncleared
    if found is None:
        return None
    evidence = (count("num_updates", found.num_updates),)
    return replace(at_phase(UNCLEARED, evidence, measurement, "backward"), severity=_CRITICAL)


def find_rate_of_zero(measurement: Measurement) -> Finding | None:
    """No bottleneck: the learning rate is zero, so that the updates change nothing."""
    rates, num = sense_of(measurement).rates, measurement.num_optimizer_updates
    if not rates or any(rate.zero_since is None for rate in rates):
        return None  # one optimizer may rest while another trains
    rate = min(rates, key=lambda one: one.zero_since or 0)
    since = rate.zero_since or 0
    wasted = num - since + 1
    is_few = wasted < max(FEW_UPDATES.value, MIN_AT_ZERO.value * num)
    if is_few or not rate.highest or rate.kind not in _SCALED_BY_RATE:
        return None
    evidence = [
        count("first_update", since),
        count("num_updates", num),
        count("updates_wasted", wasted),
        share("wasted", wasted / num),
    ]
    per_update = (rate.num_advances or 0) / max(1, num - rate.first_update + 1)
    if per_update >= _ADVANCES:
        evidence.append(count("advances_per_update", per_update))
    row = RATE_OF_ZERO if per_update < _ADVANCES else SCHEDULE_TOO_FAST
    is_most = wasted >= MOST_AT_ZERO.value * num
    finding = placed(row, evidence, rate.place)
    return replace(finding, severity=_CRITICAL) if is_most else finding


def find_unmoved_schedule(measurement: Measurement) -> Finding | None:
    """No bottleneck: a scheduler was made for an optimizer, and nothing ever stepped it."""
    sense, num = sense_of(measurement), measurement.num_optimizer_updates
    num_epochs = sense.num_epochs
    if num_epochs < UNMOVED_EPOCHS.value or num < MIN_EPOCH.value * num_epochs:
        return None
    for rate in sense.rates:
        is_long = num - rate.first_update + 1 >= UNMOVED_UPDATES.value
        is_still = rate.num_advances == 0 and not rate.has_moved
        if is_long and is_still and rate.scheduler and rate.scheduler not in _MADE_TO_WAIT:
            evidence = (count("num_updates", num), count("num_epochs", num_epochs))
            names = {"scheduler": rate.scheduler, "rate": f"{rate.highest:g}"}
            return placed(UNMOVED_SCHEDULE, evidence, rate.place, names)
    return None


def find_updates_in_evaluation(measurement: Measurement) -> Finding | None:
    """No bottleneck: an evaluation left the model in evaluation mode, and training went on."""
    found, num = sense_of(measurement).evaluated, measurement.num_optimizer_updates
    if found is None or num < found.first_update:
        return None
    part = found.num_updates / (num - found.first_update + 1)
    if found.num_updates < FEW_UPDATES.value or part < MIN_EVALUATED.value:
        return None
    evidence = (
        count("first_update", found.first_update),
        count("num_updates", num),
        count("updates_seen", found.num_updates),
    )
    names = {
        "model": found.model,
        "effect": " and ".join(_EFFECTS.get(one, one) for one in found.what),
    }
    if found.place is None:
        return replace(at_phase(EVALUATED, evidence, measurement, "evaluation"), names=names)
    return placed(EVALUATED, evidence, found.place, names)


def find_broadcast_loss(measurement: Measurement) -> Finding | None:
    """No bottleneck: a loss compares each prediction with every target."""
    found = sense_of(measurement).broadcast
    if found is None:
        return None
    shapes = {
        "prediction": _shape(found.prediction),
        "target": _shape(found.target or _other(found.prediction)),
        "result": _shape(found.result),
    }
    finding = placed(BROADCAST, (), found.place, shapes)
    return finding if found.target is None else replace(finding, severity=_CRITICAL)


def _other(prediction: tuple[int, ...]) -> tuple[int, ...]:
    """Return what a column or a row of n was compared with to give n by n."""
    return prediction[:1] if len(prediction) > 1 else (*prediction, 1)


def find_repeated_draws(measurement: Measurement) -> Finding | None:
    """No bottleneck: workers begin with one state of a generator, and draw the same numbers."""
    found = sense_of(measurement).repeated
    if found is None:
        return None
    evidence = (count("num_workers", found.num_workers), count("num_epochs", found.num_epochs))
    repeats = _AGAIN if found.num_epochs > 1 else ""
    names = {"generator": ", ".join(found.names), "repeats": repeats}
    return placed(REPEATED_DRAWS, evidence, None, names)


def find_reseeded_draws(measurement: Measurement) -> Finding | None:
    """No bottleneck: a worker seeds a generator alike in each epoch, and draws the same numbers."""
    sense = sense_of(measurement)
    if sense.reseeded is None or sense.repeated is not None:
        return None
    found = sense.reseeded
    return placed(
        RESEEDED_DRAWS,
        (count("num_epochs", found.num_epochs),),
        None,
        {"data_set": found.data_set, "generator": ", ".join(found.names)},
    )


def find_duplicated_samples(measurement: Measurement) -> Finding | None:
    """No bottleneck: each worker yields the whole of an iterable."""
    found = sense_of(measurement).duplicated
    if found is None:
        return None
    evidence = (count("num_workers", found.num_workers),)
    finding = placed(DUPLICATED, evidence, None, {"data_set": found.data_set})
    return replace(finding, severity=_CRITICAL)


def find_stale_number(measurement: Measurement) -> Finding | None:
    """No bottleneck: what the script sets on its data set does not reach the workers."""
    found = sense_of(measurement).stale
    if found is None:
        return None
    evidence = (count("last", found.parent[-1]), count("kept", found.worker))
    return placed(STALE, evidence, None, {"attribute": found.name})


_CRITICAL = Severity.CRITICAL
_AGAIN = ", and the same ones again in each epoch"
_EFFECTS = {
    "dropout": "its dropout is off",
    "batch_norm": "its batch statistics stay as they were",
}
"""What evaluation mode changes; the words are those of the sentence."""


def _shape(sizes: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"


UNCLEARED = sense_row(
    "uncleared_gradients",
    find_uncleared_gradients,
    "gradients are never cleared",
    "gradients are never cleared: in none of {num_updates} watched updates were they set to zero "
    "or None, so each update uses the sum of all gradients since the start.",
    "Call optimizer.zero_grad() once per update, before the backward pass.",
    title="gradients not cleared",
    needs="`sense.uncleared`",
)
RATE_OF_ZERO = sense_row(
    "rate_of_zero",
    find_rate_of_zero,
    "the learning rate is zero long before the end",
    "the learning rate is 0 from update {first_update} of {num_updates} on: {updates_wasted} "
    "updates ({wasted}) changed no weight.",
    "Make the schedule as long as the training, or end the training with the schedule.",
    title="learning rate 0",
    needs="`sense.rates`",
    thresholds=(MIN_AT_ZERO, FEW_UPDATES, MOST_AT_ZERO),
)
SCHEDULE_TOO_FAST = sense_row(
    "schedule_too_fast",
    find_rate_of_zero,
    "the scheduler advances several times per update, and the learning rate is zero early",
    "the learning rate is 0 from update {first_update} of {num_updates} on, because the scheduler "
    "advances {advances_per_update} times per update: {updates_wasted} updates ({wasted}) changed "
    "no weight.",
    "Step the scheduler where the optimizer steps, once per update.",
    title="learning rate 0",
    needs="`sense.rates`",
    thresholds=(MIN_AT_ZERO, FEW_UPDATES, MOST_AT_ZERO),
)
UNMOVED_SCHEDULE = sense_row(
    "unmoved_schedule",
    find_unmoved_schedule,
    "a scheduler was made, and nothing steps it",
    "the learning rate never moved from {rate}: a {scheduler} was made, and its step() was never "
    "called in {num_epochs} epochs with {num_updates} updates.",
    "Call scheduler.step() after optimizer.step(), once per update or once per epoch, as the "
    "schedule counts; or do not make a scheduler.",
    title="schedule never stepped",
    needs="`sense.rates`",
    thresholds=(UNMOVED_UPDATES, UNMOVED_EPOCHS, MIN_EPOCH),
)
EVALUATED = sense_row(
    "updates_in_evaluation",
    find_updates_in_evaluation,
    "the model trains in evaluation mode after an evaluation",
    "from update {first_update} of {num_updates} on, {model} trains in evaluation mode (seen in "
    "{updates_seen} updates), although it trained in training mode before: {effect}.",
    "Call model.train() after each evaluation.",
    title="evaluation mode",
    needs="`sense.evaluated`",
    thresholds=(FEW_UPDATES, MIN_EVALUATED),
)
BROADCAST = sense_row(
    "broadcast_loss",
    find_broadcast_loss,
    "the loss compares each prediction with every target",
    "the loss compares each prediction with every target: predictions of shape {prediction} and "
    "targets of shape {target} are broadcast to {result}, so this loss pulls all predictions to "
    "one value.",
    "Give both the same shape: target.view_as(prediction).",
    title="loss of two shapes",
    needs="`sense.broadcast`",
)
REPEATED_DRAWS = sense_row(
    "repeated_draws",
    find_repeated_draws,
    "random draws of a data set repeat in each worker",
    "random draws repeat: each of the {num_workers} workers starts from a copy of the data set's "
    "own generator ({generator}), and draws the same numbers as the others{repeats}.",
    "Seed the generator in each worker and epoch: worker_init_fn, or get_worker_info().seed.",
    title="repeated randomness",
    needs="`sense.repeated`",
)
RESEEDED_DRAWS = sense_row(
    "reseeded_draws",
    find_reseeded_draws,
    "random draws of a worker repeat in each epoch",
    "random draws repeat: in each worker {generator} begins each of the first {num_epochs} epochs "
    "in the same state, and {data_set} draws the same numbers again.",
    "Let the seed differ between epochs: torch.initial_seed() of a worker does, a constant seed in "
    "worker_init_fn, or a generator that is copied with the data set, does not.",
    title="repeated randomness",
    needs="`sense.reseeded`",
)
DUPLICATED = sense_row(
    "duplicated_samples",
    find_duplicated_samples,
    "each worker yields the whole of an iterable data set",
    "each of the {num_workers} workers iterates the whole of {data_set}: their first batches are "
    "equal, so an epoch has each sample {num_workers} times.",
    "Let each worker yield its part: torch.utils.data.get_worker_info() has its id.",
    title="duplicated samples",
    needs="`sense.duplicated`",
)
STALE = sense_row(
    "stale_number",
    find_stale_number,
    "a number that the script sets on its data set does not reach persistent workers",
    "{attribute} is {last} here and {kept} in the workers: they are persistent, and keep the copy "
    "of the data set with which they started.",
    "Keep the number in shared memory (a tensor after share_memory_()), or let workers end.",
    title="stale data set",
    needs="`sense.stale`",
)
AILMENTS = (
    *(UNCLEARED, SCHEDULE_TOO_FAST, RATE_OF_ZERO, UNMOVED_SCHEDULE, EVALUATED, BROADCAST),
    *taught.AILMENTS,
    *(DUPLICATED, REPEATED_DRAWS, RESEEDED_DRAWS, STALE),
    *on_ranks.AILMENTS,
)
WRONG = tuple(row.cause for row in (*AILMENTS, UNREGISTERED) if row.cause is not None)
"""They come before every bottleneck."""

CAUSES = (*WRONG, *filter(None, [UNUSED_GRADIENT.cause]))
"""They come before bottlenecks of the same severity: faster steps do not mend a wrong training."""
