"""The values of a desync: ranks that called different collectives, and so wait for each other."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCall:
    """A collective that a rank called or was about to call.

    Attributes:
        operation: its name in torch.distributed, such as `all_reduce`; `backward` for what
            DistributedDataParallel reduces; None where it is not known.
        number: the number of the call among those of its group that Python made, from 1; None
            where it is not known.
        elements: elements of its tensor; None where it has none or they are not known.
        dtype: type of the elements, such as `float32`; None likewise.
        group: the ranks of its group; None where these are all ranks.
        where: the innermost line of the user's code, as `FILE:LINE`; None where it is not known.
    """

    operation: str | None = None
    number: int | None = None
    elements: int | None = None
    dtype: str | None = None
    group: tuple[int, ...] | None = None
    where: str | None = None


PASSING = ("data", "python")
"""A rank comes back from there; the others of `Desync.what` stay as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desync:
    """What kept the ranks from meeting in a collective.

    Attributes:
        what: `operation` (another one), `shape` (another size or type), `missing` (a call that was
            left out), `order` (the same calls in another order), `group` (in another group),
            `left` (the rank is gone), `data` (it waits for data), `python` (it is in Python).
        culprits: the ranks that differ from the others.
        others: the ranks that they differ from.
        called: what the culprits called instead; None where they are in no collective.
        expected: what the others called.
        last: the last call that the culprits made before; None where it is not known.
        where: the line of the culprits, as `FILE:LINE`; None where it is not known.
    """

    what: str
    culprits: tuple[int, ...]
    others: tuple[int, ...]
    called: CollectiveCall | None = None
    expected: CollectiveCall | None = None
    last: CollectiveCall | None = None
    where: str | None = None
