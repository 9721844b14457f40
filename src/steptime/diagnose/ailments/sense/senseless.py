"""Ailments of trainings that run at full speed and learn something else: what the hooks saw.

They are facts of the script, and none is a bottleneck. Where a sound training does the same, the
rule gives no finding; docs/explanation/diagnosis.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from steptime.core.evidence import Evidence
from steptime.diagnose.ailments.ailment import Ailment, Asked, Rule, by_facts
from steptime.diagnose.ailments.health.idle_weights import UNUSED_GRADIENT
from steptime.diagnose.ailments.scale import Threshold
from steptime.diagnose.ailments.sense import on_ranks
from steptime.diagnose.ailments.signals import count, make_finding, share, site_of
from steptime.diagnose.values.finding import Finding, Severity
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.sense_values import Sense, SenseLine
from steptime.measure.values.observations import place_text

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
MIN_ROWS_WITHOUT = Threshold(
    name="MIN_ROWS_WITHOUT",
    value=0.2,
    why="of the rows: texts that were cut before their answer are a few percent",
)
MIN_ROWS = Threshold(
    name="MIN_ROWS", value=32, why="rows that were sampled: of fewer the share is not known"
)
_ADVANCES = 1.5
"""Advances per update: a schedule per epoch has less than one, one per update has one."""

_SCALED_BY_RATE = (
    *("SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop"),
    *("ASGD", "Adafactor", "Muon", "SparseAdam"),
)
"""Optimizers of torch whose whole step, weight decay included, is a multiple of the rate."""


def find_uncleared_gradients(measurement: Measurement) -> Finding | None:
    """No bottleneck: nothing clears the gradients, so that each update uses the sum of all."""
    found = _sense(measurement).uncleared
    if found is None:
        return None
    evidence = (count("num_updates", found.num_updates),)
    return replace(_at_phase(UNCLEARED, evidence, measurement, "backward"), severity=_CRITICAL)


def find_rate_of_zero(measurement: Measurement) -> Finding | None:
    """No bottleneck: the learning rate is zero, so that the updates change nothing."""
    rates, num = _sense(measurement).rates, measurement.num_optimizer_updates
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
    finding = _placed(row, evidence, rate.place)
    return replace(finding, severity=_CRITICAL) if is_most else finding


def find_updates_in_evaluation(measurement: Measurement) -> Finding | None:
    """No bottleneck: an evaluation left the model in evaluation mode, and training went on."""
    found, num = _sense(measurement).evaluated, measurement.num_optimizer_updates
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
        return replace(_at_phase(EVALUATED, evidence, measurement, "evaluation"), names=names)
    return _placed(EVALUATED, evidence, found.place, names)


def find_broadcast_loss(measurement: Measurement) -> Finding | None:
    """No bottleneck: a loss compares each prediction with every target."""
    found = _sense(measurement).broadcast
    if found is None:
        return None
    shapes = {
        "prediction": _shape(found.prediction),
        "target": _shape(found.target or _other(found.prediction)),
        "result": _shape(found.result),
    }
    finding = _placed(BROADCAST, (), found.place, shapes)
    return finding if found.target is None else replace(finding, severity=_CRITICAL)


def _other(prediction: tuple[int, ...]) -> tuple[int, ...]:
    """Return what a column or a row of n was compared with to give n by n."""
    return prediction[:1] if len(prediction) > 1 else (*prediction, 1)


def find_rows_without_label(measurement: Measurement) -> Finding | None:
    """No bottleneck: many rows have no target that teaches anything."""
    found = _sense(measurement).targets
    if found is None or found.rows < MIN_ROWS.value or not found.targets:
        return None
    part = found.rows_without / found.rows
    if part < MIN_ROWS_WITHOUT.value:
        return None
    evidence = (
        share("rows_without", part),
        share("useful", found.useful / found.targets),
        count("num_rows", found.rows),
        count("num_updates", found.num_updates),
        count("ignored", found.ignored),
    )
    return _at_phase(NO_LABEL, evidence, measurement, "loss")


def find_repeated_draws(measurement: Measurement) -> Finding | None:
    """No bottleneck: workers begin with one state of a generator, and draw the same numbers."""
    found = _sense(measurement).repeated
    if found is None:
        return None
    evidence = (count("num_workers", found.num_workers), count("num_epochs", found.num_epochs))
    repeats = _AGAIN if found.num_epochs > 1 else ""
    names = {"generator": ", ".join(found.names), "repeats": repeats}
    return _placed(REPEATED_DRAWS, evidence, None, names)


def find_duplicated_samples(measurement: Measurement) -> Finding | None:
    """No bottleneck: each worker yields the whole of an iterable."""
    found = _sense(measurement).duplicated
    if found is None:
        return None
    evidence = (count("num_workers", found.num_workers),)
    finding = _placed(DUPLICATED, evidence, None, {"data_set": found.data_set})
    return replace(finding, severity=_CRITICAL)


def find_stale_number(measurement: Measurement) -> Finding | None:
    """No bottleneck: what the script sets on its data set does not reach the workers."""
    found = _sense(measurement).stale
    if found is None:
        return None
    evidence = (count("last", found.parent[-1]), count("kept", found.worker))
    return _placed(STALE, evidence, None, {"attribute": found.name})


_CRITICAL = Severity.CRITICAL
_AGAIN = ", and the same ones again in each epoch"
_EFFECTS = {
    "dropout": "its dropout is off",
    "batch_norm": "its batch statistics stay as they were",
}
"""What evaluation mode changes; the words are those of the sentence."""


def _sense(measurement: Measurement) -> Sense:
    return measurement.sense or Sense()


def _shape(sizes: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"


def _at_phase(
    row: Ailment, evidence: Iterable[Evidence], measurement: Measurement, phase: str
) -> Finding:
    site = site_of(measurement, phase)
    found = make_finding(row, severity=Severity.WARNING, evidence=(), site=site)
    return replace(found, evidence=tuple(evidence))


def _placed(
    row: Ailment,
    evidence: Iterable[Evidence],
    place: SenseLine | None,
    names: Mapping[str, str] | None = None,
) -> Finding:
    found = make_finding(row, severity=Severity.WARNING, evidence=evidence)
    if place is not None:
        found = replace(found, where=place_text(place.file, place.line), where_text=place.text)
    return replace(found, names=names)


def _row(
    cause: str, rule: Rule, what: str, sentence: str, remedy: str, *, title: str, needs: str
) -> Ailment:
    """Return a row of this family, all of which hold whoever else is there."""
    thresholds = {
        find_rate_of_zero: (MIN_AT_ZERO, FEW_UPDATES, MOST_AT_ZERO),
        find_updates_in_evaluation: (FEW_UPDATES, MIN_EVALUATED),
        find_rows_without_label: (MIN_ROWS_WITHOUT, MIN_ROWS),
    }
    return Ailment(
        cause=cause,
        what=what,
        needs=needs,
        rule=rule,
        asked=Asked.ALWAYS,
        thresholds=thresholds.get(rule, ()),
        title=title,
        sentence=sentence,
        remedy=remedy,
        when_contended=by_facts("Other programs do not change what the script computes."),
    )


UNCLEARED = _row(
    "uncleared_gradients",
    find_uncleared_gradients,
    "gradients are never cleared",
    "gradients are never cleared: in none of {num_updates} watched updates were they set to zero "
    "or None, so each update uses the sum of all gradients since the start.",
    "Call optimizer.zero_grad() once per update, before the backward pass.",
    title="gradients not cleared",
    needs="`sense.uncleared`",
)
RATE_OF_ZERO = _row(
    "rate_of_zero",
    find_rate_of_zero,
    "the learning rate is zero long before the end",
    "the learning rate is 0 from update {first_update} of {num_updates} on: {updates_wasted} "
    "updates ({wasted}) changed no weight.",
    "Make the schedule as long as the training, or end the training with the schedule.",
    title="learning rate 0",
    needs="`sense.rates`",
)
SCHEDULE_TOO_FAST = _row(
    "schedule_too_fast",
    find_rate_of_zero,
    "the scheduler advances several times per update, and the learning rate is zero early",
    "the learning rate is 0 from update {first_update} of {num_updates} on, because the scheduler "
    "advances {advances_per_update} times per update: {updates_wasted} updates ({wasted}) changed "
    "no weight.",
    "Step the scheduler where the optimizer steps, once per update.",
    title="learning rate 0",
    needs="`sense.rates`",
)
EVALUATED = _row(
    "updates_in_evaluation",
    find_updates_in_evaluation,
    "the model trains in evaluation mode after an evaluation",
    "from update {first_update} of {num_updates} on, {model} trains in evaluation mode (seen in "
    "{updates_seen} updates), although it trained in training mode before: {effect}.",
    "Call model.train() after each evaluation.",
    title="evaluation mode",
    needs="`sense.evaluated`",
)
BROADCAST = _row(
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
NO_LABEL = _row(
    "rows_without_label",
    find_rows_without_label,
    "many rows have no label at all",
    "{rows_without} of the rows have no label at all (all targets are {ignored}, which the loss "
    "ignores), and {useful} of the targets teach anything, in {num_rows} rows of {num_updates} "
    "sampled updates.",
    "Look at how labels are masked: where the marker that begins an answer is not found in a row, "
    "fail or drop the row.",
    title="rows without labels",
    needs="`sense.targets`",
)
REPEATED_DRAWS = _row(
    "repeated_draws",
    find_repeated_draws,
    "random draws of a data set repeat in each worker",
    "random draws repeat: each of the {num_workers} workers starts from a copy of the data set's "
    "own generator ({generator}), and draws the same numbers as the others{repeats}.",
    "Seed the generator in each worker and epoch: worker_init_fn, or get_worker_info().seed.",
    title="repeated randomness",
    needs="`sense.repeated`",
)
DUPLICATED = _row(
    "duplicated_samples",
    find_duplicated_samples,
    "each worker yields the whole of an iterable data set",
    "each of the {num_workers} workers iterates the whole of {data_set}: their first batches are "
    "equal, so an epoch has each sample {num_workers} times.",
    "Let each worker yield its part: torch.utils.data.get_worker_info() has its id.",
    title="duplicated samples",
    needs="`sense.duplicated`",
)
STALE = _row(
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
    *(UNCLEARED, SCHEDULE_TOO_FAST, RATE_OF_ZERO, EVALUATED, BROADCAST),
    *(NO_LABEL, DUPLICATED, REPEATED_DRAWS, STALE),
    *on_ranks.AILMENTS,
)
WRONG = tuple(row.cause for row in AILMENTS if row.cause is not None)
"""They come before every bottleneck."""

CAUSES = (*WRONG, *filter(None, [UNUSED_GRADIENT.cause]))
"""They come before bottlenecks of the same severity: faster steps do not mend a wrong training."""
