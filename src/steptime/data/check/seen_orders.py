"""The loaders of a script as a child saw them: orders, batches and labels.

In: the folder of a child of `steptime data check`. Out: a `LoaderSeen` for each loader of each
rank. What they say is left to the checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steptime.record.lines import Line, LineReader, kind_of
from steptime.record.loaders import order_lines


@dataclass(slots=True)
class PassSeen:
    """One iteration over a loader.

    Attributes:
        number: among the passes of its loader, from 0.
        epoch: what the sampler was told by `set_epoch`; None for one that is not told.
        is_whole: whether `order` is all that the sampler gives.
        order: the indices that were drawn; None where there are none.
        sizes: of the batches they were drawn in.
        digests: of the samples that were handed out, by batch; None where a batch has no rows.
        labels: of the same.
        trained: whether the script trained on it.
        num_passed_over: batches it had before it trained for the first time in this process.
        ahead: batches that are fetched before the one that the script has.
        has_ended: whether the script had as much of it as it was given.
        is_at_end: whether that was all of it.
    """

    number: int
    epoch: int | None = None
    is_whole: bool = False
    order: list[int] | None = None
    sizes: list[int] = field(default_factory=list)
    digests: list[list[str] | None] = field(default_factory=list)
    labels: list[list[int] | None] = field(default_factory=list)
    trained: bool = False
    num_passed_over: int = 0
    ahead: int = 0
    has_ended: bool = False
    is_at_end: bool = False


@dataclass(slots=True)
class SavedAt:
    """Where a loader stood when the script saved a checkpoint: its pass, and batches of that."""

    number: int
    num_handed: int
    has_ended: bool


@dataclass(slots=True)
class ContentsSeen:
    """What the samples of a loader's data set hold.

    Attributes:
        dataset: tells one data set from another.
        num: samples that it has.
        digests: of those that were read.
        is_same: whether a sample that was read twice was the same.
        failed: why they could not be read; None if they could.
    """

    dataset: int
    num: int = 0
    digests: list[str] = field(default_factory=list)
    is_same: bool = False
    failed: str | None = None


@dataclass(slots=True)
class LoaderSeen:
    """One loader in one process; `nature` is how it was made (`guest/order/loader_nature.py`)."""

    number: int
    nature: Mapping[str, Any]
    passes: list[PassSeen] = field(default_factory=list)
    labels: list[int] | None = None
    saves: list[SavedAt] = field(default_factory=list)
    contents: ContentsSeen | None = None

    @property
    def place(self) -> str | None:
        """The line that makes the loader."""
        place = self.nature.get("place")
        return None if place is None else f"{place[0]}:{place[1]}"

    @property
    def rank(self) -> int:
        """Of the process."""
        return int(self.nature.get("rank") or 0)

    @property
    def trained(self) -> bool:
        """Whether the script trained on it."""
        return any(one.trained for one in self.passes)

    @property
    def epochs(self) -> list[PassSeen]:
        """The passes that trained; a look at the first batch is none."""
        return [one for one in self.passes if one.trained]


def read_orders(folder: Path) -> list[LoaderSeen]:
    """Return the loaders that a child saw, those of the lowest rank first."""
    found = [
        loader
        for path in sorted(folder.glob(order_lines.ORDERS))
        for loader in fold_lines(LineReader(path).read())
    ]
    return sorted(found, key=lambda loader: (loader.rank, loader.number))


def fold_lines(lines: Iterable[Line]) -> Iterator[LoaderSeen]:
    """Yield the loaders that the lines of one process tell of."""
    loaders: dict[int, LoaderSeen] = {}
    latest: LoaderSeen | None = None
    for line in lines:
        kind = kind_of(line)
        if kind == order_lines.SAVE:
            if latest is not None and latest.passes:
                last = latest.passes[-1]
                latest.saves.append(SavedAt(last.number, len(last.digests), last.has_ended))
            continue
        if "loader" not in line:
            continue
        number = int(line["loader"])
        if kind == order_lines.LOADER:
            loaders[number] = LoaderSeen(number, line)
            continue
        loader = loaders.get(number)
        if loader is None:
            continue
        take_line(loader, line)
        if loader.trained:
            latest = loader
    yield from loaders.values()


def take_line(loader: LoaderSeen, line: Line) -> None:
    """Take one line about a loader in."""
    kind = kind_of(line)
    if kind == order_lines.PASS:
        seen = PassSeen(number=int(line["pass"]), epoch=line.get("epoch"))
        seen.is_whole, seen.trained = bool(line.get("is_whole")), bool(line.get("trained"))
        seen.ahead = int(line.get("ahead") or 0)
        seen.order = [] if line.get("has_indices") else None
        loader.passes.append(seen)
        return
    values = line.get("values", ())
    if kind == order_lines.INDICES and line.get("what") == "labels":
        loader.labels = [*(loader.labels or ()), *values]
        return
    if kind == order_lines.SAMPLES:
        loader.contents = ContentsSeen(
            dataset=int(line.get("dataset") or 0),
            num=int(line.get("num") or 0),
            digests=list(line.get("digests") or ()),
            is_same=bool(line.get("is_same")),
            failed=line.get("failed"),
        )
        return
    seen = next((one for one in loader.passes if one.number == line.get("pass")), PassSeen(-1))
    if kind == order_lines.INDICES and line.get("what") == "order":
        seen.order = [*(seen.order or ()), *values]
    elif kind == order_lines.INDICES:
        seen.sizes += values
    elif kind == order_lines.BATCH:
        seen.digests.append(line.get("digests"))
        seen.labels.append(line.get("labels"))
        if not line.get("trained"):
            seen.num_passed_over = len(seen.digests) - 1  # it may train on the newest one
        seen.trained |= bool(line.get("trained"))
    elif kind == order_lines.PASS_END:
        seen.has_ended, seen.is_at_end = True, bool(line.get("is_at_end"))
        seen.trained |= bool(line.get("trained"))
