"""Repeats work, searches for the fastest setting, and measures that one again.

In: candidates that can be made and repeated, and the time available. Out: the settings that were
tried with their rates, and repetitions of the winner that played no part in the choice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

REPETITION_S = 0.02
"""Long compared with the clock and a waking thread, short compared with a neighbor's time slice."""

SEARCH_REPETITIONS = 3
MIN_REPETITIONS, MAX_REPETITIONS = 5, 60
NUM_FINALISTS = 3
SEARCH_SHARE = 0.5  # of the time; the rest goes to the finalists
MAX_CALLS = 10_000

Setting = dict[str, Any]


def nothing() -> None:
    """Do nothing: work on the processor is done when its call returns."""


@dataclass(frozen=True)
class RepeatedWork:
    """What is repeated.

    Attributes:
        call: does it once.
        finish: returns when all calls so far are done.
        prepare: called, unmeasured, before a repetition that follows other work.
    """

    call: Callable[[], object]
    finish: Callable[[], object] = nothing
    prepare: Callable[[], object] = nothing


@dataclass(frozen=True)
class Candidate:
    """A setting, how much work one call does with it, and how to make that work."""

    setting: Setting
    amount: float
    make: Callable[[], RepeatedWork]


@dataclass
class Tried:
    """A candidate with the rates of its repetitions; none if it could not be done."""

    candidate: Candidate
    calls: int = 1
    rates: list[float] = field(default_factory=list)

    def median(self) -> float:
        """Return the median of the repetitions, 0 without any."""
        ordered = sorted(self.rates)
        return ordered[len(ordered) // 2] if ordered else 0.0

    def fastest(self) -> float:
        """Return the fastest repetition: of three, the least disturbed one says most."""
        return max(self.rates, default=0.0)


@dataclass
class Clock:
    """The time, and when the current measurement must end [s]."""

    until_s: float
    read: Callable[[], float] = time.perf_counter

    def left_s(self) -> float:
        """Return the time until then; negative after it."""
        return self.until_s - self.read()


class Search:
    """Tries candidates while there is time, then repeats the fastest ones in turns.

    Args:
        clock: ends with the time for all of it.
        errors: what a candidate raises if it cannot be done.
    """

    def __init__(self, clock: Clock, *, errors: tuple[type[Exception], ...] = ()) -> None:
        self._clock = clock
        self._errors = errors
        self._search_until_s = clock.until_s - (1 - SEARCH_SHARE) * clock.left_s()
        self.tried: list[Tried] = []
        self.failure: str | None = None

    def try_all(self, candidates: Iterable[Candidate]) -> None:
        """Try each with a few repetitions, except those that would take too long."""
        for candidate in candidates:
            left_s = self._search_until_s - self._clock.read()
            if self.tried and (left_s <= 0 or self._expected_s(candidate) > left_s):
                continue
            try:
                self._try(candidate)
            except self._errors as error:
                lines: Sequence[str] = str(error).splitlines()
                self.failure = f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]

    def best(self) -> Tried | None:
        """Return the fastest so far."""
        return max(self.tried, key=Tried.fastest, default=None)

    def finish(self) -> Tried | None:
        """Return the winner, after repetitions in turns with its nearest rivals, or None."""
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
        """Return everything that was tried."""
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
        """Return the seconds of a call once its code and data are loaded."""
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
        """Return the expected time of its repetitions, at the rate of the last one tried."""
        rate = self.tried[-1].median()
        return (2 + SEARCH_REPETITIONS) * candidate.amount / rate if rate > 0 else 0.0


def describe(kind: str, device: str, unit: str, search: Search, **more: Any) -> dict[str, Any]:
    """Return the line of a ceiling: the winner's repetitions, or why there are none."""
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
