"""Makes the report of a study: what was gained and how, how sure that is, and what else was tried.

In: a Study, and for a page more facts. Out: a Sheet, whose sections are a visible list; words come
from `study_words`.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import datetime, timezone

from rich.text import Text

from steptime.core.printable import printable
from steptime.core.units import format_count, format_percent, format_seconds, format_speedup
from steptime.report.blocks.phrasing import joined, labeled, listed
from steptime.report.blocks.run.training_blocks import shell_words
from steptime.report.blocks.study.loss_plots import loss_plots
from steptime.report.blocks.study.story_blocks import describe_choice, story_blocks
from steptime.report.blocks.study.study_next import NOTHING_ASKED, StudyRequest, next_act
from steptime.report.blocks.study.trial_blocks import (
    MAX_ROWS,
    count_of,
    trial_table,
)
from steptime.report.blocks.values import (
    Blank,
    Block,
    Code,
    CommandLine,
    Fold,
    Heading,
    Headline,
    Labeled,
    Section,
    Sheet,
    Tile,
    Tiles,
)
from steptime.report.blocks.verify.verdict_report import seeds_blocks
from steptime.report.words.study import study_words as words
from steptime.report.words.study import verify_words
from steptime.report.words.study.outcome_words import describe_whole_run, unended_epoch
from steptime.report.words.study.unproven_words import describe_unproven, proof_lines
from steptime.tune.values.study_values import Applied, State, Study, StudyOutcome, Trial, TrialEnd
from steptime.verify.values import LossOverlay, Outcome

_MAX_WRITES, _REASON_LINES = 5, 4
_TONES = {StudyOutcome.FASTER: "good", StudyOutcome.NOTHING_HELPS: "info"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPageFacts:
    """What is known of one study beyond itself.

    `losses` are of the states that were judged, where their recordings are still there; `edits` the
    levers of the recipe with the lines that make them permanent.
    """

    study: Study
    losses: tuple[tuple[State, tuple[LossOverlay, ...]], ...] = ()
    recipe_file: str | None = None
    recipe: str | None = None
    edits: tuple[tuple[str, str], ...] = ()
    version: str = ""


def study_report(
    study: Study,
    *,
    asked: StudyRequest = NOTHING_ASKED,
    is_whole: bool = False,
    facts: StudyPageFacts | None = None,
) -> Sheet:
    """Return the report of one study; with `is_whole`, a terminal gets every trial and choice."""
    sentence, command = next_act(study, asked)
    then = CommandLine(command, "next", sentence, is_below=True)
    shown = trial_table(study, num_rows=None if is_whole or facts is not None else MAX_ROWS)
    story, not_tried = story_blocks(study), words.describe_not_tried(study.not_tried)
    parts = [
        Section("Why each thing was done", [Heading("In order"), *story] if is_whole else []),
        Section("", [*_about(study), Blank()], only="terminal"),
        Section("", [*_outcome(study), *_seen(study)]),
        Section("", [then], only="page"),
        Section("", _tiles(study), only="page"),
        Section("What each lever gave", _recipe(study)),
        Section("What was tried", [Blank(), *shown] if shown else []),
        Section("", [Blank()], only="terminal"),
        *_page_only(facts),
        Section("Whether it trains as well", _checks(study)),
        Section("Refused and failed", _refused(study)),
        Section("Not tried", listed("not tried", map(printable, not_tried))),
        Section("To prove", _unjudged(study), only="terminal"),
        Section("Writes", _writes(study), only="terminal"),
        *_page_end(facts),
        Section("", [Blank(), then], only="terminal"),
    ]
    started = datetime.fromtimestamp(study.started_unix_s, tz=timezone.utc)
    told = [study.study_id, _took(study)]
    if facts is not None:
        told.insert(1, f"started {started:%Y-%m-%d %H:%M} UTC")
    torch = None if study.torch_version is None else f"torch {study.torch_version}"
    told += [word for word in (study.device, torch) if word is not None]
    return Sheet(kind="study", command=study.command, facts=told, parts=parts)


def _took(study: Study) -> str:
    text = count_of(study.trials)
    if study.ended_unix_s is None or study.ended_unix_s < study.started_unix_s:
        return text
    return f"{text} in {format_seconds(study.ended_unix_s - study.started_unix_s)}"


def _about(study: Study) -> list[Block]:
    """Name the training of the command that was tuned, and how trials are kept from doing harm."""
    lines: list[Block] = []
    if study.training is not None:
        text = f"{study.training.number} of the command: {shell_words(study.training.words)}"
        lines.append(Labeled("training", text, max_lines=1))
    return [*lines, *labeled(("trials", _tier(study)))]


def _tier(study: Study) -> str | None:
    if study.tier is None:
        return None
    why = [printable(reason) for reason in study.tier_reasons]
    return words.describe_tier(study.tier, why, study.tier_lacks)


# -- the outcome


def _outcome(study: Study) -> list[Block]:
    """Say how the study ended, and between which bounds."""
    title, _, text = printable(words.describe_outcome(study)).partition(": ")
    noise = words.describe_noise(study.noise_floor)
    told = "; ".join(part for part in (text, noise) if part)
    return [Headline("outcome", title, told, severity=_tone(study))]


def _tone(study: Study) -> str:
    baseline = next((trial for trial in study.trials if trial.kind == "observe"), None)
    if study.outcome is None and baseline is not None and baseline.end is not TrialEnd.FINISHED:
        return "critical"
    return _TONES.get(study.outcome, "warning") if study.outcome is not None else "warning"


def _seen(study: Study) -> list[Block]:
    """Say what follows from the outcome: step, pace, quality, and what seeds said."""
    unproven = None if study.unproven is None else printable(describe_unproven(study.unproven))
    epoch = unended_epoch(study)
    lines = labeled(
        ("step", words.describe_step_beside(study)),
        ("epochs", None if epoch is None else describe_choice(epoch)),
        ("seen", unproven),
    )
    for label, step_s in (("baseline", study.baseline_step_s), ("tuned", study.tuned_step_s)):
        if step_s is not None:
            pace = words.describe_pace(step_s, study.samples_per_step, study.sample_unit)
            lines.append(Labeled(label, pace))
    if study.whole_run is not None and study.recipe:
        lines.append(Labeled("your run", describe_whole_run(study.whole_run)))
    if study.break_even_steps is not None and study.recipe:
        steps = format_count(study.break_even_steps)
        text = f"after {steps} steps of the real run, when its one-off costs are earned back"
        lines.append(Labeled("pays back", text))
    if study.quality is not None:
        text = words.describe_quality(study.quality)
        answer = words.STAYS_AS_GOOD[study.quality.outcome]
        begin, line = text.index(": ") + 2, Text(text)
        style = "green" if study.quality.outcome is Outcome.PASS else "red"
        line.stylize(style, begin, begin + len(answer))
        lines.append(Labeled("quality", line))
    if study.seeds is not None:
        told = (verify_words.describe_runs(study.seeds), verify_words.describe_price(study.seeds))
        verdict = verify_words.describe_verdict(study.seeds)
        lines += listed("over seeds", [verdict, *filter(None, told)])
    return lines


def _tiles(study: Study) -> list[Block]:
    """Return the few numbers that people look for first."""
    found: list[Tile] = []
    if (claim := study.claim) is not None:
        low, high = format_speedup(claim.low), format_speedup(claim.high)
        found.append(Tile("speedup", format_speedup(claim.estimate), f"{low} to {high}"))
    for name, step_s in (("as written", study.baseline_step_s), ("tuned", study.tuned_step_s)):
        if step_s is not None:
            found.append(Tile(name, format_seconds(step_s), "per step"))
    if study.quality is not None:
        answer = words.STAYS_AS_GOOD[study.quality.outcome]
        found.append(Tile("trains as well", answer, f"{len(study.quality.checks)} checks"))
    if study.noise_floor is not None:
        found.append(Tile("noise floor", format_percent(study.noise_floor)))
    return [Tiles(found)] if found else []


# -- the recipe


def _recipe(study: Study) -> list[Block]:
    """Show what each lever gave when it was added, or beside the others."""
    lines: list[Block] = []
    for index, applied in enumerate(study.recipe):
        text = Text(printable(words.describe_applied(applied)), style="bold")
        told = _part(study, index)
        if told is not None:
            text.append(f"  {told}", style="not bold")
        lines.append(Labeled("" if index else "levers", text))
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


def _is_same(one: State, other: State) -> bool:
    """Return whether the same levers are on with the same settings, in any order."""
    return len(one) == len(other) and all(applied in other for applied in one)


def _gain_in_more(study: Study, applied: Applied) -> Trial | None:
    """Return the last trial that left a lever out of more than the recipe."""
    for trial in reversed(study.trials):
        is_more = all(one in trial.state for one in study.recipe)
        rest = tuple(one for one in trial.state if one != applied)
        is_timed = trial.kind in ("live", "process") and trial.speedup is not None
        if is_more and is_timed and rest and _is_same(trial.reference, rest):
            return trial
    return None


# -- what is below it


def _checks(study: Study) -> list[Block]:
    """Give the details of the quality."""
    if study.quality is None or not study.quality.checks:
        return []
    return [Labeled("checks", printable(words.describe_checks(study.quality)))]


def _refused(study: Study) -> list[Block]:
    """List what lost quality, what does harm and what failed, each with its reason."""
    groups: dict[str, dict[str, str]] = {"refused": {}, "harmful": {}, "failed": {}}
    for trial in study.trials:
        label = _group(trial)
        if label is not None:
            reason = words.describe_reason(trial)
            if label == "harmful" and trial.speedup is not None:
                reason = words.describe_interval(trial.speedup)
            groups[label].setdefault(words.describe_state(trial.state), reason)
    return [
        Labeled("" if index else label, f"{state}: {reason}", max_lines=_REASON_LINES)
        for label, found in groups.items()
        for index, (state, reason) in enumerate(found.items())
    ]


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


def _unjudged(study: Study) -> list[Block]:
    """Give the line that judges each lever that changes the training."""
    return [
        CommandLine(printable(command), "" if index else "to prove", printable(name), is_below=True)
        for index, (name, command) in enumerate(proof_lines(study))
    ]


def _writes(study: Study) -> list[Block]:
    """Say what the script tried to write, and where that went."""
    if not study.tried_writes:
        return []
    shown = [printable(path) for path in study.tried_writes[:_MAX_WRITES]]
    more = len(study.tried_writes) - len(shown)
    named = joined([*shown, *([f"{more} more"] if more else [])])
    kept = "" if study.tier == "unsafe" else "; nothing of it was kept"
    return [Labeled("writes", f"the script tried to write {named}{kept}", style="dim")]


# -- what the page has alone


def _page_only(facts: StudyPageFacts | None) -> list[Section]:
    if facts is None:
        return []
    study, judged = facts.study, list[Block]()
    for state, overlays in facts.losses:
        is_recipe = state == study.recipe and state
        name = "With the recipe" if is_recipe else f"With {words.describe_state(state)}"
        judged += [Heading(name), *loss_plots(overlays)]
    return [
        Section("Whether it trains as well", judged, only="page"),
        Section("Over seeds", seeds_blocks(study.seeds), only="page"),
    ]


def _page_end(facts: StudyPageFacts | None) -> list[Section]:
    if facts is None:
        return []
    study, story = facts.study, story_blocks(facts.study)
    folded = Fold(f"{format_count(len(study.choices))} choices, in order", story)
    return [
        Section("The recipe", _recipe_file(facts), only="page"),
        Section("Why each thing was done", [folded] if story else [], only="page"),
        Section("How it was tried", [*_about(study), *_writes(study)], only="page"),
    ]


def _recipe_file(facts: StudyPageFacts) -> list[Block]:
    """Show the file, the line that uses it, and what to write in its place."""
    if facts.recipe is None:
        return []
    name = shlex.quote(facts.recipe_file or "tuned.toml")
    run = f"steptime run --recipe {name} -- {shlex.join(facts.study.command)}"
    lead = "Or write it into the script, and train without Steptime:"
    return [
        CommandLine(run, lead="Train with it:"),
        CommandLine(f"steptime patch {name} | git apply", lead=lead),
        Heading("The file"),
        Code(facts.recipe),
        *([Heading("The same by hand")] if facts.edits else []),
        *(Code(lines, label=lever) for lever, lines in facts.edits),
    ]
