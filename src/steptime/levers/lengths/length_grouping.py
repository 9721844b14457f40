"""Puts rows of similar length into the same batch, so that batches need less padding.

The script's own sampler still chooses the samples. A window of its batches at a time is sorted by
length, cut into batches of the same sizes, and given in random order.

Source: `group_by_length` in Hugging Face's Trainer, which sorts 50 batches at a time
(https://huggingface.co/docs/transformers/main_classes/trainer).
"""

from __future__ import annotations

from ..base import Facts, Lever, LoaderFacts, Moment, Preserves, Session, Settings, Undo
from .grouping import group_rows
from .trim_padding import MIN_REMOVED, masked, trim_fetched, why_not_known, why_unsafe

WINDOW = 16
"""Batches that are sorted together. Within a batch lie rows of a sixteenth of all lengths, which is
most of the gain, and a proof that ends before an epoch does still sees whole windows."""


def why_not_grouped(loader: LoaderFacts) -> str | None:
    """Return why this loader's rows cannot be grouped, as a sentence."""
    if loader.is_iterable:
        return "The data set is iterable, so no sampler chooses the order of its rows."
    if loader.is_shuffled is None:
        return "The script's own sampler chooses the batches, and it may mean their order."
    if not loader.is_shuffled:
        return "The rows are read in the order of the data set, which is left as it is."
    if loader.lengths_from is None:
        return (
            "The lengths of the rows are not known without reading all of them: a list `lengths` "
            "on the data set would tell."
        )
    return None


def padded(facts: Facts) -> list[LoaderFacts]:
    """Return the loaders whose batches hold an attention mask."""
    return [one for one in facts.loaders or () if one.padding and one.padding.side is not None]


def gain(loader: LoaderFacts) -> float:
    """Return the fraction of positions that grouping removes where batches are trimmed anyway."""
    if loader.padding is None or why_not_grouped(loader) is not None:
        return 0.0
    return 1 - loader.padding.grouped_fraction / loader.padding.longest_fraction


def must_trim(facts: Facts) -> bool:
    """Return whether batches must be trimmed too, because all are padded to one length."""
    return any(one.is_fixed for one in masked(facts))


def applies(facts: Facts) -> str | None:
    """It applies where shuffled rows of known and different lengths are padded."""
    reason = why_not_known(facts) or (why_unsafe(facts) if must_trim(facts) else None)
    if reason is not None:
        return reason
    reasons = [why_not_grouped(loader) for loader in padded(facts)]
    if all(reasons):
        return reasons[0]
    most = max(map(gain, padded(facts)))
    if most < MIN_REMOVED:
        return f"Only {most:.1%} of the positions would be saved by batches of similar lengths."
    return None


def saves(facts: Facts) -> float | None:
    """Return the fraction of time if all of it goes with the square of the length."""
    if not padded(facts):
        return None
    loader = max(padded(facts), key=gain)
    left = 1 - gain(loader)
    if must_trim(facts) and loader.padding is not None:
        left *= loader.padding.longest_fraction
    return 1 - left**2


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return one window; batches that are padded to one length are trimmed, too."""
    trims = {"trims": True} if must_trim(facts) else {}
    return ({"window": WINDOW, **trims},)


def apply(settings: Settings, session: Session) -> Undo:
    """Group the rows of each loader that feeds training, and trim its batches where asked to."""
    undos = [group_rows(session.torch, int(settings["window"]))]
    if settings.get("trims"):
        undos.append(trim_fetched(session.torch, 1))

    def undo() -> None:
        for take_back in reversed(undos):
            take_back()

    return undo


def edit(settings: Settings) -> str:
    """Return a batch sampler that does it; trimming is the edit of `trim_padding`."""
    note = "# trim each batch to its longest row as well: see trim_padding\n"
    return note * bool(settings.get("trims")) + (
        "class ByLength(BatchSampler):  # transformers: TrainingArguments(group_by_length=True)\n"
        "    def __iter__(self):\n"
        "        batches = super().__iter__()\n"
        f"        while window := list(islice(batches, {settings.get('window', WINDOW)})):\n"
        "            rows = sorted(chain(*window), key=lengths.__getitem__)\n"
        "            cut = [rows[i : i + self.batch_size] for i in range(0, len(rows), "
        "self.batch_size)]\n"
        "            yield from random.sample(cut, len(cut))\n"
        "\n\n"
        "loader = DataLoader(data, batch_sampler=ByLength(RandomSampler(data), 32, False))"
    )


LEVER = Lever(
    name="length_grouping",
    title="Put rows of similar length into the same batch, so that there is less padding.",
    relieves=("PADDING", "IMBALANCE"),
    phases=("h2d", "forward", "loss", "forward_and_loss", "backward"),
    preserves=Preserves.STATISTICAL,
    reorders=True,
    when=(
        "The rows of a map-style data set are drawn by torch's own random sampler, an attention "
        "mask says how long they are, and their lengths are known from a column, from a mask in "
        "memory, or by reading all of them within a second."
    ),
    applies=applies,
    space=space,
    moment=Moment.STARTUP,
    saves=saves,
    judged_by_cpu_time=True,
    judged_beside_others=True,
    apply=apply,
    edit=edit,
    costs=(
        "The rows of a batch are less mixed, and steps differ more in length. The rows may be read "
        "once more at the start."
    ),
    source="https://huggingface.co/docs/transformers/main_classes/trainer",
)
