"""Cuts each batch to its longest row, where an attention mask says what is padding.

Padding that the mask hides changes no result, but the model computes it. All fields of a batch that
have its length are cut together, behind the last column in which any of them holds something.

Source: dynamic padding in Hugging Face's `DataCollatorWithPadding`
(https://huggingface.co/docs/transformers/main_classes/data_collator); the cut is our own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base import Facts, Lever, Moment, PaddingFacts, Preserves, Settings, Undo
from ..tools.draws import numeric_without_draws
from .mask_padding import trim

MIN_REMOVED = 0.02
"""Fewer positions than this are not worth a trial: a study's noise is rarely below 1 %."""

DEVICE_MULTIPLE = 8
"""On a device, lengths stay multiples of this: its matrix units are fast for those alone."""


def masked(facts: Facts) -> list[PaddingFacts]:
    """Return the padding of the loaders whose batches hold an attention mask."""
    found = [loader.padding for loader in facts.loaders or ()]
    return [one for one in found if one is not None and one.side is not None]


def why_not_known(facts: Facts) -> str | None:
    """Return why it is not known what is padding, as a sentence; None if it is known."""
    if facts.loaders is not None and not facts.loaders:
        return "No DataLoader fed the training."
    if masked(facts):
        return None
    if any(loader.padding is not None for loader in facts.loaders or ()):
        return "The batches hold no attention mask, so it is not known what is padding."
    return "It was not observed whether the batches hold padding."


def why_unsafe(facts: Facts) -> str | None:
    """Return why other lengths would change this training, or its speed, as a sentence."""
    if all(one.side == "left" for one in masked(facts)):
        return "Rows are padded in front: if padding were cut there, positions would be others."
    if facts.has_batch_statistics:
        return "The model has batch norms, and padded positions may belong to their statistics."
    if facts.has_sequence_convolution:
        return "The model convolves along sequences, so padding reaches into the ends of rows."
    if facts.uses_compile:
        return "The script compiles its model, which would be compiled again for other lengths."
    return None


def applies(facts: Facts) -> str | None:
    """It applies where masked padding stands behind even the longest rows."""
    reason = why_not_known(facts) or why_unsafe(facts)
    if reason is not None:
        return reason
    if removed(facts) < MIN_REMOVED:
        return f"Only {removed(facts):.1%} of the positions stand behind a batch's longest row."
    return None


def removed(facts: Facts) -> float:
    """Return the fraction of positions that it removes, in the loader with most padding."""
    return max((1 - one.longest_fraction for one in masked(facts)), default=0.0)


def saves(facts: Facts) -> float | None:
    """Return the fraction of time if all of it goes with the square of the length."""
    return 1 - (1 - removed(facts)) ** 2 if masked(facts) else None


def edit(settings: Settings) -> str:
    """Return the collate function that does it for batches that are dicts."""
    multiple = settings.get("multiple_of", 1)
    lines = [
        "def collate(samples):",
        "    batch = default_collate(samples)  # or your own",
        '    mask = batch["attention_mask"]',
        "    length = int(mask.sum(0).nonzero()[-1]) + 1",
        f"    length += -length % {multiple}",
        "    cut = {name: t[:, :length] for name, t in batch.items() if t.shape[:2] == mask.shape}",
        "    return batch | cut",
        "",
        "",
        "loader = DataLoader(..., collate_fn=collate)",
    ]
    return "\n".join(line for line in lines if not line.endswith("% 1"))


def trim_fetched(torch: Any, multiple_of: int) -> Undo:
    """Trim the batches of each loader that is iterated with gradients on, also in its workers."""
    kind_class = torch.utils.data.dataloader._DatasetKind
    before = kind_class.__dict__["create_fetcher"]
    make = kind_class.create_fetcher

    def trimmed(collate: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def collate_and_trim(samples: Any) -> Any:
            batch = collate(samples)
            try:
                return trim(torch, batch, multiple_of=multiple_of)
            except (RuntimeError, TypeError, ValueError, LookupError):
                return batch  # a container that cannot be copied, tensors that cannot be compared

        return collate_and_trim

    def create_fetcher(*args: Any, **kwargs: Any) -> Any:
        fetcher = make(*args, **kwargs)
        if torch.is_grad_enabled():
            fetcher.collate_fn = trimmed(fetcher.collate_fn)
        return fetcher

    kind_class.create_fetcher = staticmethod(create_fetcher)
    return lambda: setattr(kind_class, "create_fetcher", before)


LEVER = Lever(
    name="trim_padding",
    title="Cut each batch to its longest row, where a mask says what is padding.",
    relieves=("PADDING",),
    phases=("h2d", "forward", "loss", "forward_and_loss", "backward"),
    preserves=Preserves.STATISTICAL,
    when=(
        "The batches hold an attention mask, and even their longest rows end in padding. The model "
        "has no batch norm and no convolution along sequences, and is not compiled. It is NUMERIC "
        "where the model draws no random numbers: dropout draws others for other shapes."
    ),
    applies=applies,
    space=lambda facts: ({"multiple_of": 1 if facts.device == "cpu" else DEVICE_MULTIPLE},),
    moment=Moment.STARTUP,
    class_here=numeric_without_draws,
    saves=saves,
    judged_by_cpu_time=True,
    judged_beside_others=True,
    apply=lambda settings, session: trim_fetched(session.torch, int(settings["multiple_of"])),
    edit=edit,
    costs=(
        "Shapes differ from step to step: memory may be more fragmented, and a model that needs a "
        "fixed length fails. A loss that counts padded positions changes, which the proof notices."
    ),
    source="https://huggingface.co/docs/transformers/main_classes/data_collator",
)
