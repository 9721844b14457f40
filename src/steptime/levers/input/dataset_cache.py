"""Keeps what it takes to make a sample, up to its first random draw, in memory or on disk.

Later epochs and the data set's workers begin there: of a sample that draws nothing all of it is
kept, of one with crops and flips the decoded picture. `kept_samples.py` finds the place and checks
that nothing changes. What feeds an evaluation is kept, too.

Source: the idea of `cache` in https://www.tensorflow.org/guide/data_performance;
https://docs.pytorch.org/docs/stable/data.html.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base import Facts, Lever, LoaderFacts, Moment, Preserves, Session, Settings, Undo
from ..tools.memory_room import bytes_to_keep
from .datasets import IN_MEMORY, are_read_here, around_fetches
from .kept_samples import Keeping, coming
from .preloaded import LIMIT_S

LEAST_SAVED = 0.2
"""Of the time that a sample takes, what is worth keeping it."""


def usable(facts: Facts) -> list[LoaderFacts]:
    """Return the loaders a part of whose work could be saved."""
    return [
        loader
        for loader in facts.loaders or ()
        if not (loader.is_iterable or loader.is_tensor_dataset or loader.is_in_memory)
        and loader.dataset not in IN_MEMORY
        and loader.kept_bytes is not None
        and (loader.saved_s or 0.0) >= LEAST_SAVED * (loader.sample_s or 0.0)
    ]


def num_bytes_of(loaders: list[LoaderFacts]) -> int | None:
    """Return what all samples take; None where that is not known."""
    sizes = [(one.num_samples or 0) * (one.kept_bytes or 0) for one in loaders]
    return sum(sizes) if all(sizes) else None


def applies(facts: Facts) -> str | None:
    """It applies where reading a sample does work before it draws, and what that gives fits."""
    if facts.loaders is not None and not facts.loaders:
        return "No DataLoader fed the training."
    if facts.loaders is None:
        return "It was not observed whether the data set gives the same samples twice."
    loaders = usable(facts)
    if not loaders:
        return (
            "No data set was seen that gives the same samples twice, or the same up to where a "
            "chain of transforms draws, and stays as it is."
        )
    if num_bytes_of(loaders) is None or facts.available_bytes is None:
        return "The size of the data set or the free memory is not known."
    return None


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return where samples are kept, and how much of them in each rank."""
    loaders, limit = usable(facts), bytes_to_keep(facts)
    needed = num_bytes_of(loaders) or 0
    has_draws = not all(one.is_deterministic for one in loaders)
    if needed <= limit:
        return ({"limit_bytes": limit, "is_on_disk": False, "has_draws": has_draws},)
    limit = 2 * needed // facts.world_size
    return ({"limit_bytes": limit, "is_on_disk": True, "has_draws": has_draws},)


def is_switched(facts: Facts) -> bool:
    """Return whether the process itself reads all, so little that a trial can read it ahead."""
    taken_s = [(one.num_samples or 0) * (one.sample_s or LIMIT_S) for one in facts.loaders or ()]
    return are_read_here(facts) and sum(taken_s) <= LIMIT_S


KNOWN: dict[tuple[Any, ...], Keeping] = {}
"""By settings: samples stay while the lever is off for some steps."""


def apply(settings: Settings, session: Session) -> Undo:
    """Let the fetchers of map-style data sets, here and in forked workers, take what is kept."""
    torch = session.torch
    limit_bytes, is_on_disk = int(settings["limit_bytes"]), bool(settings.get("is_on_disk"))
    keeping = KNOWN.setdefault(
        (limit_bytes, is_on_disk),
        Keeping(torch, limit_bytes, is_on_disk=is_on_disk, is_ahead=session.is_trial),
    )

    def make_iterator(loader: Any, original: Callable[[], Any]) -> Any:
        is_iterable = isinstance(loader.dataset, torch.utils.data.IterableDataset)
        if loader.batch_sampler is not None and not is_iterable:
            keeping.find(loader.dataset, lambda: coming(torch, loader))
        return original()

    def fetch_kept(fetcher: Any, indices: Any) -> Any:
        kept = keeping.find(fetcher.dataset)
        return None if kept is None else fetcher.collate_fn(kept.samples(indices))

    return around_fetches(torch, fetch_kept, make_iterator)


LEVER = Lever(
    name="dataset_cache",
    title="Keep samples up to their first random draw, in memory or on disk.",
    relieves=("INPUT_BOUND",),
    phases=("input_wait", "fetch"),
    preserves=Preserves.EXACT,
    when=(
        "A map-style data set gives the same samples each time, or the same up to where a chain of "
        "transforms draws (the picture before its random crop), and reading one changes nothing "
        "else. Memory takes a quarter of what is free, a file the rest. It pays off from the "
        "second epoch on, in the training process and in forked workers."
    ),
    applies=applies,
    space=space,
    moment=Moment.STARTUP,
    live_where=is_switched,
    judged_by_cpu_time=True,
    judged_beside_others=True,
    apply=apply,
    edit=lambda settings: (
        "self.samples = {}  # in the data set's __init__\n"
        "\n\n"
        "def __getitem__(self, index):\n"
        "    if index not in self.samples:\n"
        "        self.samples[index] = self.read(index)  # what was __getitem__\n"
        "    return self.samples[index]"
    ),
    costs="Memory or disk for the samples, in each rank. The first epoch gains nothing.",
    source="https://www.tensorflow.org/guide/data_performance",
)
