"""Writes the page of one study: a single file that needs no network and no script.

In: `StudyPageFacts`. Out: the text of the file. Sections are a visible list; words come from
`study_words`, drawings from `html_gains`, `html_forest` and `html_losses`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from steptime.core.units import format_count, format_percent, format_seconds, format_speedup
from steptime.diagnose.values.reach_values import Waterfall
from steptime.report.blocks.verify.verdict_report import seeds_blocks
from steptime.report.html.html_forest import trials_part
from steptime.report.html.html_frame import frame, section
from steptime.report.html.html_gains import gains_part
from steptime.report.html.html_hardware import hardware_part, unknown_part
from steptime.report.html.html_losses import losses_part
from steptime.report.html.html_tags import Html, breakable, joined_html, preformatted, table, tag
from steptime.report.html.html_thrown_away import thrown_away_part
from steptime.report.html.paint_html import paint
from steptime.report.text.study_story import describe_choice
from steptime.report.text.study_text import StudyRequest, next_act
from steptime.report.words import study_words as words
from steptime.report.words.unproven_words import describe_unproven
from steptime.tune.values.study_values import State, Study, StudyOutcome, TrialEnd
from steptime.verify.values import LossComparison, Outcome, QualityCheck

_ABSENT = "–"
_SEVERITY: Mapping[StudyOutcome | None, str] = {
    StudyOutcome.FASTER: "info",
    StudyOutcome.NOTHING_HELPS: "info",
    StudyOutcome.TOO_NOISY: "warning",
    None: "warning",
}
_MAX_WRITES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedLosses:
    """The losses of a state that was judged."""

    state: State
    comparison: LossComparison


@dataclass(frozen=True, slots=True, kw_only=True)
class HandEdit:
    """The lines that make one lever of the recipe permanent."""

    lever: str
    lines: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPageFacts:
    """What is known of one study.

    Attributes:
        study: the study.
        losses: of the states that were judged, where their recordings are still there.
        recipe_file: where the recipe is; None where there is none.
        recipe: its text.
        edits: how to do by hand what the recipe does.
        waterfall: parts of a step as written, of a run of the same command; None where no run
            has them.
        waterfall_run: id of that run.
        version: of Steptime.
    """

    study: Study
    losses: tuple[JudgedLosses, ...] = ()
    recipe_file: str | None = None
    recipe: str | None = None
    edits: tuple[HandEdit, ...] = ()
    waterfall: Waterfall | None = None
    waterfall_run: str | None = None
    version: str = ""


def render_study_page(facts: StudyPageFacts) -> str:
    """Return the whole page."""
    return frame(f"steptime {facts.study.study_id}", _body(facts))


def _body(facts: StudyPageFacts) -> list[Html]:
    study = facts.study
    parts = [
        section("What each lever gave", gains_part(study)),
        section("What was tried", trials_part(study)),
        section("Whether it trains as well", *_losses(facts), _checks(study)),
        section("Over seeds", paint(seeds_blocks(study.seeds))),
        section("Tried and thrown away", thrown_away_part(study)),
        section("Not tried", _not_tried(study)),
        section(
            "What faster hardware would change",
            hardware_part(facts.waterfall, run_id=facts.waterfall_run),
            unknown_part(facts.waterfall, study) if study.recipe else None,
        ),
        section("The recipe", _recipe(facts)),
        section("Why each thing was done", _choices(study)),
        section("How it was tried", _how(facts)),
    ]
    return [
        _header(study),
        _verdict(facts),
        _tiles(study),
        *(part for part in parts if part is not None),
    ]


def _header(study: Study) -> Html:
    started = datetime.fromtimestamp(study.started_unix_s, tz=timezone.utc)
    told = [study.study_id, f"started {started:%Y-%m-%d %H:%M} UTC", _took(study)]
    told += [text for text in (study.device, _torch(study)) if text is not None]
    command = [tag("span", shlex.quote(word), class_="word") for word in study.command]
    training = study.training
    return tag(
        "header",
        tag("p", tag("b", "steptime"), " report of one study", class_="dim"),
        tag("h1", tag("code", joined_html(command, between=" "))),
        tag("p", " · ".join(told), class_="dim"),
        None
        if training is None
        else tag("p", f"training {training.number} of the command: {shlex.join(training.words)}"),
    )


def _took(study: Study) -> str:
    num = len(study.trials)
    text = "1 trial" if num == 1 else f"{format_count(num)} trials"
    if study.ended_unix_s is None or study.ended_unix_s < study.started_unix_s:
        return f"{text} so far"
    return f"{text} in {format_seconds(study.ended_unix_s - study.started_unix_s)}"


def _torch(study: Study) -> str | None:
    return None if study.torch_version is None else f"torch {study.torch_version}"


def _verdict(facts: StudyPageFacts) -> Html:
    """Say how the study ended, and what to do now."""
    study = facts.study
    head, _, rest = words.describe_outcome(study).partition(": ")
    told = [rest and f"{rest[:1].upper()}{rest[1:]}.", _loop(study)]
    if study.unproven is not None:
        told.append(f"Seen: {describe_unproven(study.unproven)}.")
    if study.break_even_steps is not None and study.recipe:
        steps = format_count(study.break_even_steps)
        told.append(f"Its one-off costs are earned back after {steps} steps of the real run.")
    sentence, command = next_act(study, StudyRequest(recipe=facts.recipe_file))
    return tag(
        "div",
        tag("h2", head[:1].upper() + head[1:]),
        *(tag("p", text) for text in told if text),
        tag("p", sentence),
        tag("pre", command),
        class_=f"card {_severity(study)}",
    )


def _severity(study: Study) -> str:
    baseline = next((trial for trial in study.trials if trial.kind == "observe"), None)
    if study.outcome is None and baseline is not None and baseline.end is not TrialEnd.FINISHED:
        return "critical"
    return _SEVERITY[study.outcome]


def _loop(study: Study) -> str | None:
    loop = words.describe_loop(study)
    return None if loop is None else f"The loop: {loop}."


def _tiles(study: Study) -> Html:
    """Return the few numbers that people look for first."""
    found: list[Html] = []
    if study.speedup is not None:
        low, high = format_speedup(study.speedup.low), format_speedup(study.speedup.high)
        found.append(_tile("speedup", format_speedup(study.speedup.estimate), f"{low} to {high}"))
    for name, step_s in (("as written", study.baseline_step_s), ("tuned", study.tuned_step_s)):
        if step_s is not None:
            time, _, rate = words.describe_pace(
                step_s, study.samples_per_step, study.sample_unit
            ).partition(" · ")
            found.append(_tile(name, time.removesuffix(" a step"), rate or "a step"))
    if study.quality is not None:
        answer = words.STAYS_AS_GOOD[study.quality.outcome]
        num = f"{len(study.quality.checks)} checks"
        found.append(_tile("trains as well", answer, num))
    if study.noise_floor is not None:
        noise = format_percent(study.noise_floor)
        found.append(_tile("noise floor", noise, "less than this cannot be seen"))
    return tag("div", *found, class_="tiles")


def _tile(name: str, value: str, detail: str) -> Html:
    dim = "dim"
    return tag(
        "div",
        tag("span", name, class_=dim),
        tag("strong", value),
        tag("span", detail, class_=dim),
    )


# -- quality


def _losses(facts: StudyPageFacts) -> list[Html | None]:
    """Show the losses of each state that was judged, the recipe's first."""
    found: list[Html | None] = []
    for judged in facts.losses:
        is_recipe = judged.state == facts.study.recipe and judged.state
        name = "With the recipe" if is_recipe else f"With {words.describe_state(judged.state)}"
        found += [tag("h3", name), losses_part(judged.comparison)]
    return found


def _checks(study: Study) -> Html | None:
    """List what was compared for the verdict on the recipe: first what has numbers, or failed."""
    if study.quality is None or not study.quality.checks:
        return None
    checks = study.quality.checks
    told = [c for c in checks if c.outcome is not Outcome.PASS or c.estimate is not None]
    alike = [words.CHECKS.get(c.name, c.name) for c in checks if c not in told]
    heading = ["check", "result", "found", "at most", "n"]
    said = words.describe_checks(study.quality).partition(": ")[0]
    parts: list[Html | None] = [tag("h3", f"Checks: {said}")]
    if told:
        rows = [_check_cells(check) for check in told]
        parts.append(table(heading, rows, left=2, name="Checks of the quality"))
    if alike:
        parts.append(tag("p", f"Also passed: {' · '.join(alike)}.", class_="dim"))
    return joined_html(parts)


def _check_cells(check: QualityCheck) -> list[Html | str]:
    name = words.CHECKS.get(check.name, check.name)
    detail = check.detail and tag("span", check.detail, class_="arithmetic dim")
    return [
        joined_html([name, detail]),
        check.outcome.value.lower(),
        _ABSENT if check.estimate is None else f"{check.estimate:.2g}",
        _ABSENT if check.limit is None else f"{check.limit:.2g}",
        _ABSENT if check.n is None else format_count(check.n),
    ]


# -- what else


def _not_tried(study: Study) -> Html | None:
    found = words.describe_not_tried(study.not_tried)
    pairs = [text.partition(": ")[::2] for text in found]
    if not pairs:
        return None
    rows: list[list[Html | str]] = [
        [tag("b", breakable(who)), why[:1].upper() + why[1:]] for who, why in pairs
    ]
    return table(["lever", "why"], rows, left=2)


def _recipe(facts: StudyPageFacts) -> Html | None:
    """Show the file, the line that uses it, and what to write in its place."""
    if facts.recipe is None:
        return None
    command = shlex.join(facts.study.command)
    name = shlex.quote(facts.recipe_file or "tuned.toml")
    parts: list[Html | None] = [
        tag("p", "Train with it:"),
        tag("pre", f"steptime run --recipe {name} -- {command}"),
        tag("p", "Or write it into the script, and train without Steptime:"),
        tag("pre", f"steptime patch {name} | git apply"),
        tag("h3", "The file"),
        preformatted(facts.recipe),
    ]
    if facts.edits:
        parts.append(tag("h3", "The same by hand"))
    for edit in facts.edits:
        parts += [tag("p", tag("b", edit.lever)), preformatted(edit.lines)]
    return joined_html(parts)


def _choices(study: Study) -> Html | None:
    if not study.choices:
        return None
    items = [tag("li", describe_choice(choice)) for choice in study.choices]
    title = tag("summary", f"{format_count(len(items))} choices, in order")
    return tag("details", title, tag("ol", *items, class_="notes"))


def _how(facts: StudyPageFacts) -> Html:
    """Say how trials were kept from doing harm, and what the script tried to do."""
    study = facts.study
    rows: list[tuple[str, str | None]] = [
        ("trials", _tier(study)),
        ("tried to write", _listed(study.tried_writes)),
        ("tried to reach", _listed(study.tried_connections)),
        ("budget", None if study.budget_s is None else format_seconds(study.budget_s)),
        ("Steptime", facts.version or None),
    ]
    found = [[name, value] for name, value in rows if value]
    return tag(
        "div", table(["what", "value"], found, left=2, name="How it was tried"), class_="facts"
    )


def _tier(study: Study) -> str | None:
    if study.tier is None:
        return None
    return words.describe_tier(study.tier, study.tier_reasons, study.tier_lacks)


def _listed(places: Sequence[str]) -> str | None:
    shown = list(places[:_MAX_WRITES])
    num_more = len(places) - len(shown)
    return ", ".join([*shown, *([f"{num_more} more"] if num_more else [])]) or None
