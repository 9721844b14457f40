"""Prints the report of a study: what was gained and how, how sure that is, and what else was tried.

In: a Study. Out: lines on a console. The sections are a visible list; words come from
`study_words`, drawings from `interval_bars`, layout from `page`.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from steptime.core.printable import printable
from steptime.core.units import format_count, format_seconds, format_speedup
from steptime.report.blocks.phrasing import joined, shortened
from steptime.report.blocks.run.training_blocks import shell_words
from steptime.report.text.page import LABEL_WIDTH, Page, page_of
from steptime.report.text.trial_table import MAX_ROWS, trial_rows
from steptime.report.words import study_words as words
from steptime.report.words import verify_words
from steptime.report.words.advice import MAX_COMMAND
from steptime.report.words.proof_words import proof_lines
from steptime.report.words.unproven_words import describe_minutes, describe_unproven
from steptime.tune.values.study_values import Applied, State, Study, StudyOutcome, Trial, TrialEnd
from steptime.verify.values import Outcome

_MAX_WRITES = 5

# PyG's words, where its `NeighborSampler` finds neither.
_PYG_REFUSES = "requires either 'pyg-lib' or 'torch-sparse'"

_OUTCOME_STYLES = {
    StudyOutcome.FASTER: "bold green",
    StudyOutcome.NOTHING_HELPS: "bold",
    StudyOutcome.TOO_NOISY: "bold yellow",
    None: "bold yellow",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRequest:
    """What the last line repeats of the command line.

    `recipe` is the path where the recipe was written; `options` are the user's own options, and
    `budget_s` is the time.
    """

    recipe: str | None = None
    options: tuple[str, ...] = ()
    budget_s: float | None = None


NOTHING_ASKED = StudyRequest()


def render_study(
    study: Study, *, console: Console, asked: StudyRequest = NOTHING_ASKED, num_rows: int = MAX_ROWS
) -> None:
    """Print the report of one study."""
    page = page_of(console)
    page.write(_report(study, page=page, asked=asked, num_rows=num_rows))


def _report(study: Study, *, page: Page, asked: StudyRequest, num_rows: int) -> list[Text]:
    gap = [Text()]
    table = trial_rows(study, page, num_rows=num_rows)
    blocks = [
        *_checks(study, page),
        *_refused(study, page),
        *_not_tried(study, page),
        *_unjudged(study, page),
        *_writes(study, page),
    ]
    sentence, command = next_act(study, asked)
    return [
        *_header(study, page),
        *gap,
        *_outcome(study, page),
        *_unproven(study, page),
        *_pace(study, page),
        *_quality(study, page),
        *_seeds(study, page),
        *_recipe(study, page),
        *(gap if table else []),
        *table,
        *(gap if blocks else []),
        *blocks,
        *gap,
        *page.block("next", sentence),
        Text(" " * LABEL_WIDTH + command, style="bold"),
    ]


def _header(study: Study, page: Page) -> list[Text]:
    command = shortened(shlex.join(study.command), page.width - LABEL_WIDTH)
    facts = [study.study_id, _num_tried(study)]
    if study.device is not None:
        facts.append(printable(study.device))
    lines = [
        *page.block("steptime", Text(command, style="bold")),
        *page.block("study", joined(facts)),
    ]
    if study.training is not None:
        shown = shortened(shell_words(study.training.words), page.width - LABEL_WIDTH - 20)
        lines += page.block("training", f"{study.training.number} of the command: {shown}")
    if study.tier is not None:
        why = [printable(reason) for reason in study.tier_reasons]
        lines += page.block("trials", words.describe_tier(study.tier, why, study.tier_lacks))
    return lines


def _num_tried(study: Study) -> str:
    num = len(study.trials)
    text = "1 trial" if num == 1 else f"{num} trials"
    if study.ended_unix_s is None or study.ended_unix_s < study.started_unix_s:
        return text
    return f"{text} in {format_seconds(study.ended_unix_s - study.started_unix_s)}"


def _outcome(study: Study, page: Page) -> list[Text]:
    text = printable(words.describe_outcome(study))
    noise = words.describe_noise(study.noise_floor)
    line = Text(text if noise is None else f"{text}; {noise}")
    line.stylize(_OUTCOME_STYLES[study.outcome], 0, len(text.partition(":")[0]))
    loop = words.describe_loop(study)
    return [*page.block("outcome", line), *([] if loop is None else page.block("loop", loop))]


def _unproven(study: Study, page: Page) -> list[Text]:
    """Say what was seen and not proven, and how much time is missing."""
    if study.unproven is None:
        return []
    return page.block("seen", printable(describe_unproven(study.unproven)))


def _pace(study: Study, page: Page) -> list[Text]:
    """Show the pace from baseline to tuned."""
    lines: list[Text] = []
    rows = (("baseline", study.baseline_step_s), ("tuned", study.tuned_step_s))
    for label, step_s in rows:
        if step_s is not None:
            pace = words.describe_pace(step_s, study.samples_per_step, study.sample_unit)
            lines += page.block(label, pace)
    if study.break_even_steps is not None and study.recipe:
        steps = format_count(study.break_even_steps)
        text = f"after {steps} steps of the real run, when its one-off costs are earned back"
        lines += page.block("pays back", text)
    return lines


def _quality(study: Study, page: Page) -> list[Text]:
    if study.quality is None:
        return []
    text = words.describe_quality(study.quality)
    answer = words.STAYS_AS_GOOD[study.quality.outcome]
    begin = text.index(": ") + 2
    line = Text(text)
    style = "green" if study.quality.outcome is Outcome.PASS else "red"
    line.stylize(style, begin, begin + len(answer))
    return page.block("quality", line)


def _seeds(study: Study, page: Page) -> list[Text]:
    """Say what trainings over seeds said of the recipe, and what its speed costs."""
    if study.seeds is None:
        return []
    lines = page.block("over seeds", Text(verify_words.describe_verdict(study.seeds)))
    told = (verify_words.describe_runs(study.seeds), verify_words.describe_price(study.seeds))
    return [*lines, *(line for text in told if text for line in page.block("", text))]


def _checks(study: Study, page: Page) -> list[Text]:
    """Give the details of the quality."""
    if study.quality is None or not study.quality.checks:
        return []
    return page.block("checks", printable(words.describe_checks(study.quality)))


def _recipe(study: Study, page: Page) -> list[Text]:
    """Show what each lever gave when it was added, or beside the others."""
    lines: list[Text] = []
    for index, applied in enumerate(study.recipe):
        text = Text(printable(words.describe_applied(applied)), style="bold")
        told = _part(study, index)
        if told is not None:
            text.append(f"  {told}", style="not bold")
        lines += page.block("" if index else "levers", text)
    return lines


def _part(study: Study, index: int) -> str | None:
    """Say what one lever of the recipe gave; None for a single one, whose gain is the claim."""
    applied = study.recipe[index]
    rest = tuple(one for one in study.recipe if one is not applied)
    gain = _gain(study, study.recipe, rest) or _gain_in_more(study, applied)
    if gain is not None and rest:
        return _describe_gain(gain, " beside the others")
    gain = _gain(study, study.recipe[: index + 1], study.recipe[:index])
    if gain is not None:
        return _describe_gain(gain, " over the line above" if gain.reference else "")
    return "its own gain is not known" if rest else None


def _describe_gain(gain: Trial, over: str) -> str | None:
    if gain.speedup is not None:
        return words.describe_interval(gain.speedup) + over
    if gain.few is None:
        return None
    return f"{format_speedup(gain.few.median)}{over} in {gain.few.n} pairs, too few for an interval"


def _gain(study: Study, state: State, reference: State) -> Trial | None:
    """Return the trial that timed a state against another; the order of levers does not matter."""
    timed = (t for t in study.trials if t.kind in ("live", "process") and (t.speedup or t.few))
    return next(
        (t for t in timed if _is_same(t.state, state) and _is_same(t.reference, reference)), None
    )


def _gain_in_more(study: Study, applied: Applied) -> Trial | None:
    """Return the last trial that left a lever out of more than the recipe."""
    for trial in reversed(study.trials):
        is_more = all(one in trial.state for one in study.recipe)
        rest = tuple(one for one in trial.state if one != applied)
        is_timed = trial.kind in ("live", "process") and trial.speedup is not None
        if is_more and is_timed and rest and _is_same(trial.reference, rest):
            return trial
    return None


def _is_same(one: State, other: State) -> bool:
    return len(one) == len(other) and all(applied in other for applied in one)


# -- what is below it


def _refused(study: Study, page: Page) -> list[Text]:
    """List what lost quality, what does harm and what failed, each with its reason."""
    groups: dict[str, dict[str, str]] = {"refused": {}, "harmful": {}, "failed": {}}
    for trial in study.trials:
        label = _group(trial)
        if label is not None:
            reason = words.describe_reason(trial)
            if label == "harmful" and trial.speedup is not None:
                reason = words.describe_interval(trial.speedup)
            groups[label].setdefault(words.describe_state(trial.state), reason)
    lines: list[Text] = []
    for label, found in groups.items():
        for index, (state, reason) in enumerate(found.items()):
            text = shortened(f"{state}: {reason}", 4 * (page.width - LABEL_WIDTH))
            lines += page.block("" if index else label, text)
    return lines


def _group(trial: Trial) -> str | None:
    if trial.kind == "observe":
        return None
    if trial.quality is not None and trial.quality.outcome is not Outcome.PASS:
        return "refused"
    if trial.end is TrialEnd.DIVERGED:
        return "refused"
    if trial.end in (TrialEnd.FAILED, TrialEnd.OUT_OF_MEMORY, TrialEnd.TIMED_OUT):
        return "failed"
    is_slower = trial.speedup is not None and trial.speedup.high < 1
    return "harmful" if is_slower else None


def _not_tried(study: Study, page: Page) -> list[Text]:
    lines: list[Text] = []
    for index, text in enumerate(words.describe_not_tried(study.not_tried)):
        lines += page.block("" if index else "not tried", printable(text))
    return lines


def _unjudged(study: Study, page: Page) -> list[Text]:
    """Give the line that judges each lever that changes the training."""
    lines: list[Text] = []
    for name, command in proof_lines(study):
        lines += page.block("" if lines else "to prove", printable(name))
        lines.append(Text(" " * LABEL_WIDTH + printable(command)))
    return lines


def _writes(study: Study, page: Page) -> list[Text]:
    """Say what the script tried to write, and where that went."""
    if not study.tried_writes:
        return []
    shown = [printable(path) for path in study.tried_writes[:_MAX_WRITES]]
    num_more = len(study.tried_writes) - len(shown)
    more = [f"{num_more} more"] if num_more else []
    kept = "" if study.tier == "unsafe" else "; nothing of it was kept"
    text = "the script tried to write " + joined([*shown, *more]) + kept
    return page.block("writes", text, style="dim")


# -- the last line


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
    options = list(asked.options or study.options)
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
