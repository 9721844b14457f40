"""What a study tells on the way: each trial that ended once, whatever answered for several."""

from __future__ import annotations

from pathlib import Path

from steptime.tune.search.search_notes import Found, SearchSummary
from steptime.tune.study.progress_teller import ProgressTeller
from steptime.tune.study.study_folder import StudyFolder
from steptime.tune.values.study_progress import StudyProgress
from study_cases import BF16, FUSED, OBSERVED, speedup, trial


def make_found(*trials: object) -> Found:
    return Found(
        outcome=None,
        recipe=(),
        speedup=None,
        noise_floor=None,
        quality=None,
        baseline_step_s=None,
        tuned_step_s=None,
        sample_unit=None,
        trials=trials,  # type: ignore[arg-type]
        not_tried=(),
        choices=(),
    )


def test_an_answer_for_two_levers_tells_of_both() -> None:
    told: list[StudyProgress] = []
    folder = StudyFolder(
        study_id="x", folder=Path(), key="", started_unix_s=0.0, budgets_s=(600.0,)
    )
    teller = ProgressTeller(folder, 600.0, told.append)
    trials = [OBSERVED, trial(1, BF16, speedup=speedup(1.2, 1.1, 1.3)), trial(2, FUSED)]
    for known in (trials[:1], trials, trials):
        found = make_found(*known)
        teller.answered(
            SearchSummary(
                phase="live", ended=known[-1], best_state=(), best=None, left_s=9.0, found=found
            )
        )
    ended = [(p.trial, p.ended.number) for p in told if p.ended is not None]
    assert ended == [(1, 0), (2, 1), (3, 2)]
