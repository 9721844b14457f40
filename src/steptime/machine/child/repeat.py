"""Repeats a piece of work, searches settings for the fastest, and measures that one anew.

In: candidates that can be made and repeated, and the time there is. Out: the settings that were
tried with their rates, and the repetitions of the winner, which the search did not choose by.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

REPETITION_S = 0.02
"""Long against the clock and a thread that wakes up, short against a neighbor's time slice."""

SEARCH_REPETITIONS = 3
MIN_REPETITIONS, MAX_REPETITIONS = 5, 60
NUM_FINALISTS = 3
SEARCH_SHARE = 0.5  # of the time; the rest goes to the finalists
MAX_CALLS = 10_000

Setting = dict[str, Any]


def nothing() -> None:
    """Work on the processor is done when its call returns."""


@dataclass(frozen=True)
class RepeatedWork:
    """What is repeated.

    Attributes:
        call: does it once.
        finish: returns when all calls so far are done.
        prepare: to do before a repetition that follows on another work's, unmeasured.
    """

    call: Callable[[], object]
    finish: Callable[[], object] = nothing
    prepare: Callable[[], object] = nothing


@dataclass(frozen=True)
class Candidate:
    """A setting, how much work a call does there, and how to get ready for it."""

    setting: Setting
    amount: float
    make: Callable[[], RepeatedWork]


@dataclass
class Tried:
    """A candidate with what its repetitions reached; none where it could not be done."""

    candidate: Candidate
    calls: int = 1
    rates: list[float] = field(default_factory=list)

    def median(self) -> float:
        """Of the repetitions, 0 where there are none."""
        ordered = sorted(self.rates)
        return ordered[len(ordered) // 2] if ordered else 0.0

    def fastest(self) -> float:
        """Of the repetitions: of three, the one that neighbors disturbed least tells most."""
        return max(self.rates, default=0.0)


@dataclass
class Clock:
    """The time, and when what is measured now has to end [s]."""

    until_s: float
    read: Callable[[], float] = time.perf_counter

    def left_s(self) -> float:
        """Time until then; below zero behind it."""
        return self.until_s - self.read()


class Search:
    """Tries candidates while there is time, then repeats the fastest in turns.

    Args:
        clock: ends at the end of the time for all of it.
        errors: what a candidate that cannot be done raises.
    """

    def __init__(self, clock: Clock, *, errors: tuple[type[Exception], ...] = ()) -> None:
        self._clock = clock
        self._errors = errors
        self._search_until_s = clock.until_s - (1 - SEARCH_SHARE) * clock.left_s()
        self.tried: list[Tried] = []
        self.failure: str | None = None

    def try_all(self, candidates: Iterable[Candidate]) -> None:
        """A few repetitions each; those that would take too long are left out."""
        for candidate in candidates:
            left_s = self._search_until_s - self._clock.read()
            if self.tried and (left_s <= 0 or self._expected_s(candidate) > left_s):
                continue
            try:
                self._try(candidate)
            except self._errors as error:
                self.failure = _first_line(error)

    def best(self) -> Tried | None:
        """The fastest so far."""
        return max(self.tried, key=Tried.fastest, default=None)

    def finish(self) -> Tried | None:
        """The winner, with repetitions made in turns with its nearest rivals; None without any."""
        ranked = sorted(self.tried, key=Tried.fastest, reverse=True)[:NUM_FINALISTS]
        finalists, works = [], []
        for one in ranked:
            with suppress(*self._errors):  # together they may need more memory than there is
                works.append(one.candidate.make())
                finalists.append(Tried(candidate=one.candidate, calls=one.calls))
        for number in range(MAX_REPETITIONS):
            if number >= MIN_REPETITIONS and self._clock.left_s() <= 0:
                break
            for one, work in zip(finalists, works, strict=True):
                one.rates.append(self._rate(one.candidate, work, one.calls, is_first=number == 0))
        return max(finalists, key=Tried.median, default=None)

    def points(self) -> list[dict[str, Any]]:
        """All that was tried."""
        return [{"setting": one.candidate.setting, "rate": one.median()} for one in self.tried]

    def _try(self, candidate: Candidate) -> None:
        work = candidate.make()
        call_s = self._warm(work)
        calls = max(1, min(MAX_CALLS, round(REPETITION_S / max(call_s, 1e-9))))
        one = Tried(candidate=candidate, calls=calls)
        for _ in range(SEARCH_REPETITIONS):
            one.rates.append(self._rate(candidate, work, calls))
            if self._clock.read() > self._search_until_s:
                break
        self.tried.append(one)

    def _warm(self, work: RepeatedWork) -> float:
        """Seconds of a call once its code and data are there."""
        work.prepare()
        self._timed(work, 1)
        calls = 1
        while True:
            took_s = self._timed(work, calls)
            if took_s >= REPETITION_S / 4 or calls >= MAX_CALLS:
                return took_s / calls
            calls *= 4

    def _timed(self, work: RepeatedWork, calls: int) -> float:
        began_s = self._clock.read()
        for _ in range(calls):
            work.call()
        work.finish()
        return self._clock.read() - began_s

    def _rate(
        self, candidate: Candidate, work: RepeatedWork, calls: int, *, is_first: bool = False
    ) -> float:
        work.prepare()
        if is_first:  # its data are new
            self._timed(work, 1)
        return candidate.amount * calls / max(1e-9, self._timed(work, calls))

    def _expected_s(self, candidate: Candidate) -> float:
        """Of all of its repetitions, at the rate of the last one that was tried."""
        rate = self.tried[-1].median()
        return (2 + SEARCH_REPETITIONS) * candidate.amount / rate if rate > 0 else 0.0


def describe(kind: str, device: str, unit: str, search: Search, **more: Any) -> dict[str, Any]:
    """The line of a ceiling: the winner's repetitions, or why there are none."""
    winner = search.finish()
    line = {"k": "ceiling", "kind": kind, "device": device, "unit": unit, **more}
    if winner is None:
        return {**line, "missing": "not_supported", "detail": search.failure}
    return {
        **line,
        "rates": winner.rates,
        "setting": winner.candidate.setting,
        "points": search.points(),
    }


def _first_line(error: Exception) -> str:
    lines: Sequence[str] = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]
