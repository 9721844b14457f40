"""Writes each answer to disk before the search sees it, and reads it back when a study resumes.

In: a bench and the folder of a study. Out: a bench. The search is a function of the answers, so
with those of an earlier call it goes the same way again, up to where that call was cut off. For the
same reason the time that is left changes only when an answer comes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from steptime.core.codec import from_json, parse_document, to_json
from steptime.core.schema import SCHEMA
from steptime.core.store import write_text
from steptime.errors import DamagedRunError
from steptime.record.regular_file import read_regular
from steptime.tune.search.bench import (
    Baseline,
    ComparisonResult,
    JudgeRequest,
    LiveRequest,
    ObserveRequest,
    ProcessRequest,
    Request,
    UntimedBench,
    WholeRequest,
    WholeResult,
)
from steptime.tune.values.study_values import State
from steptime.verify.values import Verdict

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedQuestion:
    """One question to the bench; `is_replayed` where its answer was on disk."""

    number: int
    ask: str
    request: Request
    is_replayed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """The time that the study had taken when the answer came [s]; the rest is the answer's own."""

    ask: str
    spent_s: float
    schema: int


class RecordedBench:
    """A bench that keeps each answer, and gives those that it has."""

    def __init__(
        self,
        bench: UntimedBench,
        folder: Path,
        *,
        budget_s: float,
        clock: Callable[[], float],
        tell: Callable[[AskedQuestion], None] = lambda asked: None,
        adopt: Callable[[Baseline], None] = lambda baseline: None,
    ) -> None:
        """Continue with the answers in `folder`.

        `tell` hears of each question before it is answered, `adopt` of a baseline that was
        observed by an earlier call.
        """
        self._bench = bench
        self._folder = folder
        self._budget_s = budget_s
        self._clock = clock
        self._tell = tell
        self._adopt = adopt
        self._number = 0
        self._spent_before_s = 0.0
        self._began: float | None = None
        self._spent_s = 0.0

    def observe(self) -> Baseline:
        """The baseline, once."""
        return self._answer("observe", ObserveRequest(), Baseline, self._bench.observe)

    def compare_live(self, request: LiveRequest) -> ComparisonResult:
        """A live comparison."""
        return self._answer(
            "compare_live", request, ComparisonResult, lambda: self._bench.compare_live(request)
        )

    def compare_processes(self, request: ProcessRequest) -> ComparisonResult:
        """A comparison between processes."""
        return self._answer(
            "compare_processes",
            request,
            ComparisonResult,
            lambda: self._bench.compare_processes(request),
        )

    def judge(self, state: State) -> Verdict:
        """A judgement of quality."""
        return self._answer(
            "judge", JudgeRequest(state=state), Verdict, lambda: self._bench.judge(state)
        )

    def run_whole(self, request: WholeRequest) -> WholeResult:
        """Runs of the command to its end."""
        return self._answer(
            "run_whole", request, WholeResult, lambda: self._bench.run_whole(request)
        )

    def time_left_s(self) -> float:
        """As of the last answer."""
        return self._budget_s - self._spent_s

    def _answer(self, ask: str, request: Request, cls: type[T], act: Callable[[], T]) -> T:
        path = self._folder / f"{self._number:03d}.json"
        found = self._recall(path, ask, request, cls) if self._began is None else None
        self._tell(
            AskedQuestion(
                number=self._number, ask=ask, request=request, is_replayed=found is not None
            )
        )
        self._number += 1
        if found is not None:
            if isinstance(found, Baseline):
                self._adopt(found)
            return found
        if self._began is None:
            self._forget()
            self._began, self._spent_before_s = self._clock(), self._spent_s
        result = act()
        self._spent_s = self._spent_before_s + self._clock() - self._began
        document = {
            "schema": SCHEMA,
            "ask": ask,
            "spent_s": self._spent_s,
            "request": to_json(request),
            "result": to_json(result),
        }
        write_text(path, json.dumps(document) + "\n")
        return result

    def _recall(self, path: Path, ask: str, request: Request, cls: type[T]) -> T | None:
        """The stored answer, if it is one to the same question."""
        try:
            document: Any = parse_document(read_regular(path))
            stored = from_json(_Stored, document, where=path.name)
            if stored.ask != ask or document["request"] != to_json(request):
                return None
            result = from_json(cls, document["result"], where=path.name)
        except (OSError, ValueError, LookupError, TypeError, RecursionError, DamagedRunError):
            return None  # there is none, or it was cut off, or another Steptime wrote it
        self._spent_s = stored.spent_s
        return result

    def _forget(self) -> None:
        """From here on the way is another one: what is stored beyond is no answer to it."""
        for path in sorted(self._folder.glob("*.json")):
            if path.stem.isdigit() and int(path.stem) >= self._number - 1:
                path.unlink(missing_ok=True)
