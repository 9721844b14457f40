"""Says how far a study is: a `StudyProgress` for each thing that happens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from steptime.core.note import Note
from steptime.isolate.tiers import Containment
from steptime.tune.search.bench import (
    JudgeRequest,
    LiveRequest,
    ProcessRequest,
    Request,
    WholeRequest,
)
from steptime.tune.search.search import SearchSummary
from steptime.tune.study.recorded_answers import AskedQuestion
from steptime.tune.study.study_folder import StudyFolder
from steptime.tune.trials.quiet_watch import Waited
from steptime.tune.values.study_progress import StudyProgress
from steptime.tune.values.study_values import State

_PHASES = {
    "observe": "observe",
    "compare_live": "live",
    "compare_processes": "process",
    "judge": "quality",
    "run_whole": "confirm",
}
_BESIDES = 5  # other trials than those of levers: observe, noise, quality, proof


class ProgressTeller:
    """Remembers what was said last, and says what is new."""

    def __init__(
        self, folder: StudyFolder, budget_s: float, progress: Callable[[StudyProgress], None]
    ) -> None:
        self._progress = progress
        self._folder = folder
        self._summary: SearchSummary | None = None
        self._ended: set[int] = set()
        self._now = StudyProgress(study_id=folder.study_id, phase="probe", trial=0, left_s=budget_s)

    def begin(self) -> None:
        """The study begins or resumes, perhaps in another store than the wanted one."""
        folder = self._folder
        if folder.instead_of is not None:
            facts = {"store": str(folder.instead_of), "reason": folder.because or ""}
            facts["folder"] = str(folder.folder)
            self._tell(note=Note(code="stored_elsewhere", facts=facts))
        self._tell(note=Note(code="resumed") if folder.is_resumed else None)

    def contain(self, containment: Containment) -> None:
        """How trials are kept from doing harm is known."""
        self._now = replace(
            self._now,
            tier=containment.tier.value,
            tier_reasons=containment.reasons,
            tier_lacks=containment.lacks,
        )
        self._tell()

    def wait(self, waited: Waited) -> None:
        """A wait for a quiet machine is over."""
        if not waited.is_quiet:
            facts = {"others_cores": waited.others_cores}
            self._tell(phase="quiet", note=Note(code="not_quiet", facts=facts))

    def ask(self, asked: AskedQuestion) -> None:
        """Something is about to be tried."""
        is_proof = self._summary is not None and self._summary.phase == "confirm"
        phase = _PHASES[asked.ask]
        self._now = replace(
            self._now,
            phase="confirm" if is_proof and asked.ask != "judge" else phase,
            trial=asked.number + 1,
            state=_state_of(asked.request),
            is_replayed=asked.is_replayed,
        )
        self._tell()

    def answered(self, summary: SearchSummary) -> None:
        """An answer came."""
        self._summary = summary
        offered = sum(choice.code == "offered" for choice in summary.found.choices)
        self._now = replace(
            self._now,
            num_trials=max(self._now.trial, offered + _BESIDES) if offered else None,
            best=summary.best,
            best_state=summary.best_state,
            left_s=summary.left_s,
        )
        for trial in summary.found.trials:
            if trial.number not in self._ended:
                self._ended.add(trial.number)
                self._progress(replace(self._now, trial=len(self._ended), ended=trial))
        self._tell()

    def done(self) -> None:
        """The study is over."""
        self._tell(phase="done")

    def _tell(self, *, phase: str | None = None, note: Note | None = None) -> None:
        self._progress(replace(self._now, phase=phase or self._now.phase, note=note))


def _state_of(request: Request) -> State:
    """What is on in the thing that is tried; of a live comparison all of its states."""
    if isinstance(request, LiveRequest):
        levers = {one.name: one for state in request.states[1:] for one in state}
        return (*request.fixed, *levers.values())
    if isinstance(request, ProcessRequest):
        return request.candidate
    return request.state if isinstance(request, (JudgeRequest, WholeRequest)) else ()
