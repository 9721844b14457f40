"""Says what to do after a study: one sentence and the command to type."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from steptime.core.printable import printable
from steptime.report.words.run.advice import MAX_COMMAND
from steptime.report.words.study.unproven_words import describe_minutes
from steptime.tune.values.study_values import Study, StudyOutcome, TrialEnd
from steptime.verify.values import Outcome

# PyG's words, where its `NeighborSampler` finds neither.
_PYG_REFUSES = "requires either 'pyg-lib' or 'torch-sparse'"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRequest:
    """What the last line repeats of the command line.

    `recipe` is the path where the recipe was written, and `budget_s` is the time.
    """

    recipe: str | None = None
    budget_s: float | None = None


NOTHING_ASKED = StudyRequest()


def next_act(study: Study, asked: StudyRequest) -> tuple[str, str]:
    """Say what to do now, and give the command to type."""
    command = shlex.join(study.command)
    if not command.isprintable() or len(command) > MAX_COMMAND:
        command = "..."
    if study.seeds is not None and study.seeds.outcome is Outcome.FAIL:
        return (
            "See what it costs, and choice by choice why:",
            f"steptime show {study.study_id}",
        )
    if study.outcome is StudyOutcome.FASTER and study.recipe:
        recipe = shlex.quote(asked.recipe or "tuned.toml")
        return "Train with it:", f"steptime run --recipe {recipe} -- {command}"
    if study.outcome is StudyOutcome.NOTHING_HELPS:
        return "See why, choice by choice:", f"steptime show {study.study_id}"
    options = list(study.options)
    baseline = next((trial for trial in study.trials if trial.kind == "observe"), None)
    if study.outcome is None and baseline is not None and baseline.reason == "outlived":
        process = str((baseline.facts or {}).get("process", ""))
        training = process if process.startswith("python") else "python train.py"
        return "Tune the training itself, in the foreground:", f"steptime tune -- {training}"
    if study.outcome is None and baseline is not None and baseline.end is TrialEnd.FAILED:
        if study.tried_connections and "network" not in study.tier_lacks:
            words_ = shlex.join(["--share-network", *options])
            wanted = printable(study.tried_connections[0])
            return (
                f"It wanted to reach {wanted}, which no trial may. If each trial may use this "
                "machine's network:",
                f"steptime tune {words_} -- {command}",
            )
        if _PYG_REFUSES in str((baseline.facts or {}).get("last_line", "")):
            return (
                "PyG samples neighbors with one of the two; the loaders of `steptime.graph.loader` "
                "(`steptime[graph]`) need neither. Import them from there, then:",
                f"steptime tune -- {command}",
            )
        return "Make sure that it trains by itself:", f"steptime run -- {command}"
    if study.is_interrupted:
        sentence = "Continue from here:"
        options = [word for word in options if word != "--fresh"]
    elif study.unproven is not None and study.unproven.missing_s is not None:
        minutes = describe_minutes(study.unproven.missing_s)
        sentence = f"Continue from here, with about {minutes} more:"
        options = [word for word in _without_budget(options) if word != "--fresh"]
        options += ["--budget", _enough_time(study.unproven.missing_s, study, asked)]
    else:
        sentence = "Try again with more time, when the machine is quiet:"
        options = [*_without_budget(options), "--budget", _more_time(study, asked)]
    return sentence, " ".join(["steptime tune", shlex.join(options), "--", command]).replace(
        "  ", " "
    )


def _without_budget(options: Sequence[str]) -> list[str]:
    """Return the user's options without `--budget`."""
    kept: list[str] = []
    words_ = iter(options)
    for word in words_:
        if word == "--budget":
            next(words_, None)
        elif not word.startswith("--budget="):
            kept.append(word)
    return kept


def _enough_time(missing_s: float, study: Study, asked: StudyRequest) -> str:
    """Return the time granted so far with what is missing, in whole minutes."""
    granted_s = study.budget_s or asked.budget_s or 0.0
    return f"{math.ceil((granted_s + max(60.0, missing_s)) / 60)}m"


def _more_time(study: Study, asked: StudyRequest) -> str:
    """Return twice the time, in whole minutes."""
    took_s = (study.ended_unix_s or study.started_unix_s) - study.started_unix_s
    return f"{max(1, math.ceil((asked.budget_s or max(took_s, 300.0)) * 2 / 60))}m"
