"""Checks what must be equal in two runs, however they round: batches, updates, settings.

In: the recordings of the baseline and the candidate. Out: one `QualityCheck` for each count. A
lever that trains on fewer batches, or with fewer layers, fails here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from steptime.verify.recordings import RankRecording, RecordedUpdate, Recording
from steptime.verify.values import Outcome, QualityCheck

Ranks = Iterator[tuple[RankRecording, RankRecording]]

EXACT, STATISTICAL = "EXACT", "STATISTICAL"
BYTES, SAMPLES, INDEX, INDICES, SIZE, CONTENT = 1, 2, 3, 4, 5, 6
"""Columns of `Update.fed`; those of `Update.epochs` follow."""
EPOCH_SAMPLES, EPOCH_INDICES, EPOCH_SIZE = 2, 3, 4


def check_counts(
    baseline: Recording,
    candidate: Recording,
    *,
    preserves: str,
    perturbed: Sequence[Recording] | None = (),
) -> tuple[QualityCheck, ...]:
    """Return the checks of all counts, over the updates that both runs recorded.

    `perturbed` runs show which inputs depend on the weights; None means there are none yet.
    """
    checks = [check_recording(baseline, candidate), check_updates(baseline, candidate)]
    if len(baseline.ranks) != len(candidate.ranks):
        return tuple(checks)
    checks.append(check_batches(baseline, candidate, preserves=preserves))
    if preserves != STATISTICAL:
        checks.append(check_inputs(baseline, candidate, perturbed, preserves=preserves))
    checks += [
        _compare(baseline, candidate, name=name, key=key, say=say) for name, key, say in COUNTS
    ]
    checks += [check_ranks(baseline, candidate), check_graphs(baseline, candidate)]
    return tuple(checks)


def check_recording(baseline: Recording, candidate: Recording) -> QualityCheck:
    """Check that both were recorded without a failure of ours, from the same initial weights."""
    for name, recording in (("baseline", baseline), ("candidate", candidate)):
        texts = [text for rank in recording.ranks if rank.end for text in rank.end.failures]
        if texts:
            return _say("recording", Outcome.INCONCLUSIVE, f"{name}: {texts[0]}")
        if not recording.num_updates:
            return _say("recording", Outcome.INCONCLUSIVE, f"{name}: no optimizer update was seen")
    for rank, (a, b) in enumerate(pairs(baseline, candidate)):
        if a.head.initial != b.head.initial:
            return _say("recording", Outcome.FAIL, f"other initial weights on rank {rank}")
    return _say("recording", Outcome.PASS, None)


def check_updates(baseline: Recording, candidate: Recording) -> QualityCheck:
    """Check that the candidate made as many updates on as many ranks, unless it was cut short."""
    if len(baseline.ranks) != len(candidate.ranks):
        found = f"{len(candidate.ranks)} ranks instead of {len(baseline.ranks)}"
        return _say("updates", Outcome.FAIL, found)
    for a, b in pairs(baseline, candidate):
        if len(a.updates) != len(b.updates):
            found = f"{len(b.updates)} updates instead of {len(a.updates)}"
            is_over = b.end is not None and a.end is not None
            outcome = Outcome.FAIL if is_over else Outcome.INCONCLUSIVE
            return _say("updates", outcome, found, n=candidate.num_updates)
    return _say("updates", Outcome.PASS, None, n=candidate.num_updates)


def check_batches(baseline: Recording, candidate: Recording, *, preserves: str) -> QualityCheck:
    """Check that the batches came in the same order; where it is free, check the samples.

    If the bits need not be the same, padding behind the rows may be missing.
    """
    n = min(baseline.num_updates, candidate.num_updates)
    if preserves != STATISTICAL:
        key = _batches if preserves == EXACT else _contents
        return _compare(baseline, candidate, name="batches", key=key, say=_say_batches)
    for a, b in pairs(baseline, candidate):
        outcome, text = _compare_samples(a.updates[:n], b.updates[:n])
        if outcome is not Outcome.PASS:
            return _say("batches", outcome, text, n=n)
    return _say("batches", Outcome.PASS, None, n=n)


def _batches(update: RecordedUpdate) -> object:
    num_calls = None if update.closure else len(update.inputs)
    return num_calls, tuple((row[BYTES], row[SIZE]) for row in update.fed)


def _contents(update: RecordedUpdate) -> object:
    num_calls = None if update.closure else len(update.inputs)
    return num_calls, tuple((row[CONTENT], row[SIZE]) for row in update.fed)


def _say_batches(a: RecordedUpdate, b: RecordedUpdate) -> str:
    if len(a.inputs) != len(b.inputs) and not a.closure:
        return f"{len(b.inputs)} calls of models instead of {len(a.inputs)}"
    if len(a.fed) != len(b.fed):
        return f"{len(b.fed)} batches from loaders instead of {len(a.fed)}"
    return "another batch from a loader"


def check_inputs(
    baseline: Recording,
    candidate: Recording,
    perturbed: Sequence[Recording] | None,
    *,
    preserves: str = EXACT,
) -> QualityCheck:
    """Check that each call has the same inputs, unless they come from a model, as in a GAN.

    Inputs that come from a model differ in a perturbed run too. If the bits need not be the same,
    padding behind the rows may be missing.
    """

    def inputs_of(update: RecordedUpdate) -> tuple[int, ...]:
        found = update.inputs if preserves == EXACT else update.contents
        return tuple(sorted(set(found))) if update.closure else found

    n = min(one.num_updates for one in (baseline, candidate, *(perturbed or ())))
    for rank, (a, b) in enumerate(pairs(baseline, candidate)):
        others = [one.ranks[rank].updates for one in perturbed or () if rank < len(one.ranks)]
        for i in range(n):
            known, found = inputs_of(a.updates[i]), inputs_of(b.updates[i])
            computed = {
                position
                for updates in others
                for position, (x, y) in enumerate(zip(known, inputs_of(updates[i]), strict=False))
                if x != y
            }
            positions = range(min(len(known), len(found)))
            if any(known[j] != found[j] for j in positions if j not in computed):
                outcome = Outcome.INCONCLUSIVE if perturbed is None else Outcome.FAIL
                return _say("inputs", outcome, f"other inputs of the model (update {i})", n=n)
    return _say("inputs", Outcome.PASS, None, n=n)


def _compare_samples(
    a: Sequence[RecordedUpdate], b: Sequence[RecordedUpdate]
) -> tuple[Outcome, str | None]:
    """Return whether the same samples came, over whole epochs.

    Before an epoch ends, it is enough that they came in the same order, or were mixed in windows.
    Where no loader gives any, models must be called with the same ones.
    """
    if not any(update.fed or update.epochs for update in (*a, *b)):
        inputs = [[update.inputs for update in updates] for updates in (a, b)]
        if any(map(any, inputs[0])) and inputs[0] == inputs[1]:
            return Outcome.PASS, None
    epochs = [[row for update in updates for row in update.epochs] for updates in (a, b)]
    for number, (one, other) in enumerate(zip(*epochs, strict=False)):
        if one[EPOCH_SIZE] != other[EPOCH_SIZE]:
            return Outcome.FAIL, f"{other[EPOCH_SIZE]} samples in epoch {number}"
        column = EPOCH_INDICES if one[EPOCH_INDICES] >= 0 else EPOCH_SAMPLES
        if one[column] != other[column]:
            return Outcome.FAIL, f"other samples in epoch {number}"
    if all(epochs):
        return Outcome.PASS, None
    for column in (BYTES, INDEX):
        fed = [[row[column] for update in updates for row in update.fed] for updates in (a, b)]
        if fed[0] and fed[0] == fed[1] and -1 not in fed[0]:
            return Outcome.PASS, None
    if _is_mixed_in_windows(a, b):
        return Outcome.PASS, None
    return Outcome.INCONCLUSIVE, "no epoch was complete, and the samples came in another order"


def _is_mixed_in_windows(a: Sequence[RecordedUpdate], b: Sequence[RecordedUpdate]) -> bool:
    """Return whether the same samples came again and again, and what is left is less than a window.

    A window ends where both runs have had the same samples since the first update, in any order.
    """
    sums, ends = [0, 0], [0]
    for n, (one, other) in enumerate(zip(a, b, strict=False), start=1):
        if any(row[INDICES] < 0 for row in (*one.fed, *other.fed)):
            return False
        sums[0] += sum(row[INDICES] for row in one.fed)
        sums[1] += sum(row[INDICES] for row in other.fed)
        if sums[0] == sums[1] and sums[0]:
            ends.append(n)
    longest = max((end - begin for begin, end in pairwise(ends)), default=0)
    return len(a) - ends[-1] < longest


Count = tuple[
    str, Callable[[RecordedUpdate], object], Callable[[RecordedUpdate, RecordedUpdate], str]
]

COUNTS: tuple[Count, ...] = (
    (
        "samples",
        lambda u: u.closure or u.samples,
        lambda a, b: f"{b.samples} samples instead of {a.samples}",
    ),
    (
        "backwards",
        lambda u: u.closure or u.backwards,
        lambda a, b: f"{b.backwards} backward calls instead of {a.backwards}",
    ),
    (
        "learning_rates",
        lambda u: (u.opt, u.lrs),
        lambda a, b: f"{list(b.lrs)} instead of {list(a.lrs)}",
    ),
    ("optimizers", lambda u: (u.opt, u.hyper), lambda a, b: "other settings of the optimizer"),
    ("evaluations", lambda u: u.evals, lambda a, b: f"{b.evals} calls instead of {a.evals}"),
    (
        "gradients",
        lambda u: (u.grads, u.mask),
        lambda a, b: f"{b.grads} tensors with a gradient instead of {a.grads}",
    ),
    ("tensors", lambda u: u.kinds, lambda a, b: "other shapes, dtypes or wants of a gradient"),
    ("modes", lambda u: u.modes, lambda a, b: "layers in another mode, or with other settings"),
    (
        "statistics",
        lambda u: u.stats,
        lambda a, b: "buffers " + ("moved that did not" if b.stats else "stood still that moved"),
    ),
    (
        "moves",
        lambda u: u.moved,
        lambda a, b: "the update changed " + ("weights" if b.moved else "no weight"),
    ),
)
"""Name, what must be equal of an update, and the words that say that it is not."""


def _compare(
    baseline: Recording,
    candidate: Recording,
    *,
    name: str,
    key: Callable[[RecordedUpdate], object],
    say: Callable[[RecordedUpdate, RecordedUpdate], str],
) -> QualityCheck:
    """Check that something of each update is equal, and say where it first differs."""
    n = min(baseline.num_updates, candidate.num_updates)
    for rank, (a, b) in enumerate(pairs(baseline, candidate)):
        for one, other in zip(a.updates[:n], b.updates[:n], strict=False):
            if key(one) != key(other) and not _was_made_sooner(name, one, other):
                words = _name_difference(name, a, b) or say(one, other)
                where = f"update {one.n}" if len(baseline.ranks) == 1 else f"{one.n}, rank {rank}"
                return _say(name, Outcome.FAIL, f"{words} ({where})", n=n)
    return _say(name, Outcome.PASS, None, n=n)


def _was_made_sooner(name: str, a: RecordedUpdate, b: RecordedUpdate) -> bool:
    """Whether the backward made the update, so that the step found none: it left the same bits."""
    return name in ("gradients", "moves") and not b.grads and a.weights == b.weights


def _name_difference(name: str, a: RankRecording, b: RankRecording) -> str | None:
    """Return the first row in which the tables differ; None if `name` is not about tables."""
    for one, other in zip(a.tables, b.tables, strict=False):
        if name == "optimizers":
            if one.optimizer != other.optimizer:
                return f"{other.optimizer} instead of {one.optimizer}"
            if one.groups != other.groups:
                return _first_difference(_items(one.groups), _items(other.groups))
        elif name in {"tensors", "modes"}:
            rows = [getattr(table, name) for table in (one, other)]
            if rows[0] != rows[1]:
                return _first_difference(*rows)
    return None


def _items(groups: Iterable[object]) -> list[tuple[str, str]]:
    return [
        (str(key), str(value))
        for group in groups
        if hasattr(group, "items")
        for key, value in group.items()
    ]


def _first_difference(a: Sequence[Sequence[str]], b: Sequence[Sequence[str]]) -> str:
    for one, other in zip(a, b, strict=False):
        if one != other:
            ours = [y for x, y in zip(one, other, strict=False) if x != y]
            was = [x for x, y in zip(one, other, strict=False) if x != y]
            return f"{other[0]}: {', '.join(ours)} instead of {', '.join(was)}"
    return f"{len(b)} instead of {len(a)}"


def check_ranks(baseline: Recording, candidate: Recording) -> QualityCheck:
    """Check that ranks whose weights agree in the baseline also agree in the candidate."""
    n = min(baseline.num_updates, candidate.num_updates)
    if len(baseline.ranks) < 2 or _disagreement(baseline, n) is not None:
        return _say("ranks_agree", Outcome.PASS, None, n=n)
    found = _disagreement(candidate, n)
    if found is None:
        return _say("ranks_agree", Outcome.PASS, None, n=n)
    return _say("ranks_agree", Outcome.FAIL, f"other weights on ranks after update {found}", n=n)


def _disagreement(recording: Recording, n: int) -> int | None:
    for i in range(n):
        if len({rank.updates[i].weights for rank in recording.ranks}) > 1:
            return i
    return None


def check_graphs(baseline: Recording, candidate: Recording) -> QualityCheck:
    """Check that torch compiled what the candidate asked for, and did not fall back to eager."""
    for a, b in pairs(baseline, candidate):
        if not (a.updates and b.updates):
            continue
        one, other = a.updates[-1], b.updates[-1]
        # Blocks that are compiled one by one share the graphs of blocks that are compiled at once.
        are_shared = one.compiles > 0 and other.graphs == one.graphs > 0
        if other.compiles > one.compiles and other.graphs <= one.graphs and not are_shared:
            return _say("graphs", Outcome.FAIL, "nothing was compiled: the lever has no effect")
        if other.fallbacks > one.fallbacks:
            return _say("graphs", Outcome.FAIL, "torch gave up compiling at its recompile limit")
    return _say("graphs", Outcome.PASS, None)


def pairs(baseline: Recording, candidate: Recording) -> Ranks:
    """Return the ranks of both runs, side by side."""
    return zip(baseline.ranks, candidate.ranks, strict=False)


def _say(name: str, outcome: Outcome, detail: str | None, *, n: int | None = None) -> QualityCheck:
    return QualityCheck(name=name, outcome=outcome, detail=detail, n=n)
