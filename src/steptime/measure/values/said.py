"""The values of what libraries said while a command ran."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryMessage:
    """A warning or a log record of a library, with those that differ from it only in numbers.

    Attributes:
        channel: `warning`, `log`, or `stderr` where it was read in the kept output of the command.
        who: the category of a warning, the name of a logger, or the file that wrote to stderr;
            all of them with commas between, where several said the same.
        text: the first one, cut to 600 characters.
        origin: the file that said it; empty where only its output tells.
        num: how often it was shown, in the rank that said it most; Python shows most warnings once.
        num_ranks: ranks that said it.
        first_update: updates before the first time; null where that is not known.
        last_update: updates before the last time; null where that is not known.
        where: the innermost line of the script that led to the first one; null where none did.
    """

    channel: str
    who: str
    text: str
    origin: str = ""
    num: int = 1
    num_ranks: int = 1
    first_update: int | None = None
    last_update: int | None = None
    where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedSearch:
    """DDP's search for unused parameters, in the rank that searched most.

    Attributes:
        iterations: iterations of which DDP's logging data tell.
        with_unused: those of them in which a parameter was unused.
        s_per_step: time that DDP took between forward and backward for it in a step [s]; null where
            it was not timed, as within a compiled function.
    """

    iterations: int
    with_unused: int
    s_per_step: float | None = None
