"""The wording of every machine word of a study, in one place: typed values in, text out.

docs/internals/study-folder.md lists the words. A word that is not in the tables is shown
as it is. `study_text` does the layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from steptime.core.evidence import Evidence
from steptime.core.interval import Interval
from steptime.core.note import Fact
from steptime.core.units import (
    format_count,
    format_percent,
    format_seconds,
    format_speedup,
    format_value,
)
from steptime.measure.values.observations import Difference
from steptime.report.words.study.fact_words import describe_fact, describe_facts, fill
from steptime.report.words.study.outcome_words import OUTCOME_HEADS, OUTCOME_REASONS, claimed_span
from steptime.tune.values.study_values import (
    Applied,
    NotTried,
    State,
    Study,
    StudyOutcome,
    Trial,
    TrialEnd,
)
from steptime.verify.values import Outcome, QualityCheck, Verdict

Setting = str | int | float | bool

TIERS: Mapping[str, str] = {
    "isolated": "isolated: everything that a trial writes lands in memory and vanishes with it",
    "guarded": "guarded: a trial can write only to its own folder",
    "unsafe": (
        "unsafe: nothing keeps a trial from changing your files, reaching the network, or "
        "disturbing other programs"
    ),
}
LACKS: Mapping[str, str] = {
    "network": "whatever the script sends over the network, each trial sends too (--share-network)",
    "races": (
        "a program that changes an address while it is looked at can reach the sockets of other "
        "programs"
    ),
    "sockets": "nothing keeps a trial from using the socket files of other programs",
}

OUTCOMES: Mapping[StudyOutcome | None, str] = {
    StudyOutcome.FASTER: "faster",
    StudyOutcome.NOTHING_HELPS: "nothing helps",
    StudyOutcome.TOO_NOISY: "too noisy to tell",
    None: "undecided",
}

# What a row of the table says at its end, by the reason of the trial; at most nine letters.
MARKS: Mapping[str, str] = {
    "slower": "slower",
    "no_gain": "no gain",
    "undecided": "unclear",
    "too_few_pairs": "unclear",
    "cannot_tell": "unclear",
    "halved": "given up",
    "pruned": "given up",
    "not_earned": "no payoff",
    "not_confirmed": "unclear",
    "too_few_repeats": "unclear",
    "repeats_disagree": "unclear",
}
_END_MARKS: Mapping[TrialEnd, str] = {
    TrialEnd.FAILED: "failed",
    TrialEnd.OUT_OF_MEMORY: "no memory",
    TrialEnd.TIMED_OUT: "too long",
    TrialEnd.PRUNED: "given up",
    TrialEnd.DIVERGED: "diverged",
    TrialEnd.INTERRUPTED: "cut short",
}
_QUALITY_MARKS: Mapping[Outcome, str] = {
    Outcome.PASS: "as good",
    Outcome.FAIL: "refused",
    Outcome.INCONCLUSIVE: "uncertain",
}

ENDS: Mapping[TrialEnd, str] = {
    TrialEnd.FINISHED: "it finished",
    TrialEnd.FAILED: "the script failed with it",
    TrialEnd.OUT_OF_MEMORY: "the script ran out of memory",
    TrialEnd.TIMED_OUT: "it hung or took too long, and was stopped",
    TrialEnd.PRUNED: "it could no longer win, and was stopped",
    TrialEnd.DIVERGED: "the loss was no longer a finite number",
    TrialEnd.INTERRUPTED: "the study was interrupted",
}

# Why a trial was not kept or ended so; braces hold the name of a fact.
REASONS: Mapping[str, str] = {
    "slower": "it is slower",
    "no_gain": "it gives no gain beyond the noise",
    "undecided": "its interval reaches from below the noise floor to above it",
    "too_few_pairs": "there was no time for enough pairs",
    "cannot_tell": "other programs kept the machine too busy to tell",
    "halved": "other settings of the lever are faster",
    "pruned": "it could no longer win",
    "not_earned": "it takes {one_off_s} once, and earns that back only after {steps} steps",
    "harmful": "it makes the training worse",
    "quality_undecided": "it is not certain that the training stays as good",
    "not_confirmed": "fresh repeats did not confirm the gain",
    "too_few_repeats": "there was no time for enough repeats",
    "repeats_disagree": "its fresh repeats disagree",
    "interrupted": "the study was interrupted",
    "lever_failed": "the lever itself failed: {error}",
    "exit_code": "the script ended with exit code {exit_code}: {last_line}",
    "signal": "the script was killed by signal {signal}",
    "slower_in_trials": (
        "a step takes {trial_s} in a trial and {run_s} as `steptime run` watches it, with no lever "
        "in either: the script may behave differently where levers are judged"
    ),
    "record_untrue": "its record tells of {told_s} of steps where {passed_s} passed",
    "cpu_untrue": "its record tells of {told_s} of CPU time where the kernel counted {kernel_s}",
    "record_changed": "the script changed {file}, which holds what the trial is judged by",
    "out_of_memory": "the script ran out of memory",
    "time_limit": "it took too long and was stopped",
    "no_first_step": "no step ended in time, so it was stopped",
    "hung": "it hung and was stopped",
    "ended_itself": "the script ended before enough steps were measured",
    "no_steps": "no training step was seen",
    "outlived": (
        "the command returned while its training went on in the background (process {process}). "
        "Run the training in the foreground, without nohup, `&` or a launcher that detaches it"
    ),
    "too_few_steps": "the script ended before enough steps were measured",
    "ends_too_soon": "the script ended before enough steps were measured",
    "too_slow": "it was far slower and was stopped",
    "not_finite": "the loss was no longer a finite number",
    "no_valid_block": "none of its steps could be timed, because each of them compiled something",
}
SHORT_REASONS: Mapping[str, str] = {
    "exit_code": "the script ended with exit code {exit_code}",
}
"""The words where the script said nothing."""
BARE_REASONS: Mapping[str, str] = {
    "not_earned": "it takes longer once than the run can earn back",
    "lever_failed": "the lever itself failed",
    "exit_code": "the script ended with an error",
    "outlived": "its training goes on in the background",
    "signal": "the script was killed by a signal",
    "record_changed": "the script changed the record that the trial is judged by",
}
"""The same reasons without their facts."""

NOT_TRIED: Mapping[str, str] = {
    "excluded": "left out by --exclude",
    "not_chosen": "not listed in --levers",
    "no_time": "there was no time left{most}",
    "failed_before": "it failed in an earlier study of this script, and was not needed",
    "needless": "what was kept leaves it nothing to do",
    "no_settings": "it has no setting for this machine",
    "changes_training": "it would change the training (--allow-training-changes)",
    "needs_proof_over_seeds": "it changes the training, and needs proof over seeds",
    "headroom_below_noise": "it could give {headroom} at most; the noise floor is {noise_floor}",
}

# What a check compares.
CHECKS: Mapping[str, str] = {
    "replay": "losses, bit for bit",
    "one_step": "one step against float64",
    "one_step_gradient": "gradients of one step",
    "one_step_change": "weight changes of one step",
    "lockstep": "losses in lockstep",
    "lockstep_bias": "drift of the losses",
    "lockstep_late": "drift at the end",
    "lockstep_beyond": "size of the later losses",
    "lockstep_evaluation": "evaluation losses",
    "batches": "the same batches",
    "inputs": "the same model inputs",
    "samples": "the same samples",
    "updates": "the same number of updates",
    "evaluations": "the same number of evaluations",
    "ranks_agree": "all ranks agree",
    "graphs": "compiled where it should be",
    "learning_rates": "the same learning rates",
    "gradients": "no gradient is missing",
    "backwards": "the same number of backward passes",
    "optimizers": "the same optimizer settings",
    "tensors": "the same shapes and types of tensors",
    "modes": "the same layer modes",
    "statistics": "the same buffers change",
    "moves": "updates change the weights",
    "finite": "finite losses",
    "recording": "a complete recording",
    "class": "what the lever preserves",
}

STAYS_AS_GOOD: Mapping[Outcome, str] = {
    Outcome.PASS: "yes",
    Outcome.FAIL: "no",
    Outcome.INCONCLUSIVE: "not certain",
}

# What an interval says compared with the noise floor.
WORTH: Mapping[str, str] = {
    "gain": "a gain",
    "slower": "slower",
    "no_gain": "no gain",
    "undecided": "unclear",
}

DIFFERENCES: Mapping[str, str] = {
    "command": "it was proven for another command: {proven}",
    "script": "the script has changed since the proof ({proven})",
    "cpu": "it was proven on another CPU: {proven}; here it is {here}",
    "num_cores": "it was proven with {proven} cores; here there are {here}",
    "memory_bytes": "it was proven with {proven} of memory; here there are {here}",
    "device": "it was proven on {proven}; here it trains on {here}",
    "torch_version": "it was proven with torch {proven}; here it is {here}",
}


def describe_difference(difference: Difference) -> str:
    """Say what has changed since the recipe was proven."""
    what = difference.what
    proven, here = (describe_fact(what, fact) for fact in (difference.proven, difference.here))
    sentence = fill(DIFFERENCES.get(what), {"proven": proven, "here": here})
    return sentence or f"{what}: {proven}, here {here}"


def describe_applied(applied: Applied) -> str:
    """Return a lever with its settings: `autocast bf16`, `dataloader num_workers=2 pin_memory`."""
    return describe_lever(applied.name, applied.settings)


def describe_lever(lever: str, settings: Mapping[str, Setting]) -> str:
    """Return the same for a name and its settings.

    A text of several lines is left out, and a limit of memory, which follows from the machine.
    """
    settings = {
        name: one
        for name, one in settings.items()
        if name != "limit_bytes" and not (isinstance(one, str) and "\n" in one)
    }
    if len(settings) == 1:
        (value,) = settings.values()
        if not isinstance(value, bool):
            return f"{lever} {_number(value)}"
    parts = [_describe_setting(name, value) for name, value in settings.items()]
    return " ".join((lever, *parts))


def _describe_setting(name: str, value: Setting) -> str:
    if isinstance(value, bool):
        return name if value else f"{name}=off"
    return f"{name}={_number(value)}"


def _number(value: str | int | float) -> str:
    return value if isinstance(value, str) else format_count(value)


def describe_state(state: State, *, reference: State = ()) -> str:
    """Say what is on, or what was added if more than the command as written is the reference."""
    if not state:
        return "as written, repeated"  # compared with itself, to measure the noise
    added = tuple(one for one in state if one not in reference)
    if reference and added:
        return "+ " + " + ".join(map(describe_applied, added))
    return " + ".join(map(describe_applied, state))


def describe_interval(speedup: Interval, *, what: str = "") -> str:
    """Return the speedup with all that belongs to it; `what` says of what it is."""
    low, high = format_speedup(speedup.low), format_speedup(speedup.high)
    pairs = "1 pair" if speedup.n == 1 else f"{speedup.n:,} pairs"
    return f"{format_speedup(speedup.estimate)}{what}, 95 % interval {low} to {high}, {pairs}"


def describe_mark(trial: Trial) -> str:
    """Return what a row says at its end, in a word or two."""
    if trial.end is not TrialEnd.FINISHED:
        return _END_MARKS[trial.end]
    if trial.quality is not None:
        return _QUALITY_MARKS[trial.quality.outcome]
    if trial.reason is not None:
        return MARKS.get(trial.reason, "not kept")
    if trial.kind == "confirm":
        return "proof"
    return "helps" if trial.speedup is not None and trial.speedup.low > 1 else ""


def describe_reason(trial: Trial) -> str:
    """Say why a trial was not kept, in a sentence without its end."""
    if trial.quality is not None and trial.quality.outcome is not Outcome.PASS:
        return describe_worst(trial.quality)
    facts = describe_study_facts(trial.facts or {})
    reason = trial.reason or ""
    tables = (REASONS, SHORT_REASONS, BARE_REASONS)
    known = next((text for table in tables if (text := fill(table.get(reason), facts))), None)
    if known is not None:
        return known
    end = "" if trial.end is TrialEnd.FINISHED else ENDS[trial.end]
    listed = ", ".join(f"{name} {value}" for name, value in facts.items())
    return ", ".join(part for part in (end, trial.reason, listed) if part) or "it was not kept"


def describe_worst(quality: Verdict) -> str:
    """Name the checks that are not passed."""
    failed = [check for check in quality.checks if check.outcome is not Outcome.PASS]
    if not failed:
        return "the quality of its training could not be judged"
    return "; ".join(map(describe_check, failed))


def describe_quality(quality: Verdict) -> str:
    """Say whether the training stays as good, and by how many checks."""
    num = len(quality.checks)
    checks = "1 check" if num == 1 else f"{num} checks"
    details = f" ({checks}, details below)" if num else ""
    return f"training stays as good: {STAYS_AS_GOOD[quality.outcome]}{details}"


def describe_checks(quality: Verdict) -> str:
    """Say how many checks passed, up to which level, and what they compared."""
    num = len(quality.checks)
    num_passed = sum(check.outcome is Outcome.PASS for check in quality.checks)
    counted = f"all {num} passed" if num_passed == num else f"{num_passed} of {num} passed"
    level = "" if quality.level is None else f", up to level {quality.level}"
    told = [c for c in quality.checks if c.outcome is not Outcome.PASS or c.estimate is not None]
    alike = [c for c in quality.checks if c not in told]
    return f"{counted}{level}: {' · '.join(map(describe_check, [*told, *alike]))}"


def describe_check(check: QualityCheck) -> str:
    """Say what was compared, with its numbers: `one step against float64: 0.31 (at most 0.031)`."""
    name = CHECKS.get(check.name, check.name)
    if check.outcome is Outcome.INCONCLUSIVE:
        return f"{name}: not certain" + (f" ({check.detail})" if check.detail else "")
    parts = []
    if check.estimate is not None:
        limit = "" if check.limit is None else f" (at most {check.limit:.2g})"
        parts.append(f"{check.estimate:.2g}{limit}")
    if check.detail and check.name == "lockstep":
        parts.append(check.detail)
    elif check.detail and check.outcome is Outcome.FAIL:
        parts.append(f"worst in {check.detail}" if parts else check.detail)
    if not parts and check.outcome is Outcome.FAIL:
        parts.append("failed")
    return name + (f": {', '.join(parts)}" if parts else "")


def describe_not_tried(items: Iterable[NotTried]) -> list[str]:
    """List the levers that were not tried, with one line for each reason."""
    groups: dict[str, list[str]] = {}
    for item in items:
        facts = {e.name: _value(e) for e in item.evidence}
        most = facts.get("headroom")  # at most 100x: the search never counts more than 99 %
        told = "acts on all of a step" if most == "100x" else f"could give at most {most}"
        facts["most"] = f"; it {told}" if most else ""
        reason = item.text or fill(NOT_TRIED.get(item.reason), facts) or item.reason
        groups.setdefault(reason.rstrip("."), []).append(item.name)
    return [f"{', '.join(names)}: {reason}" for reason, names in groups.items()]


def describe_tier(tier: str, reasons: Sequence[str], lacks: Sequence[str]) -> str:
    """Say what keeps the trials from harm, what it does not hold, and why it is no better."""
    more = [] if tier == "unsafe" else [LACKS.get(word, word) for word in lacks]
    parts = [TIERS.get(tier, tier), *more]
    why = "; ".join(reason.rstrip(".") for reason in reasons)
    because = f" (nothing better is possible here: {why})" if why else ""
    return "; ".join(parts) + because


def describe_outcome(study: Study) -> str:
    """Say how the study ended, with the speedup or with the reason why there is none."""
    if study.is_interrupted and study.outcome is None:
        return "interrupted: " + _describe_best(study)
    if study.outcome is None:
        baseline = next((t for t in study.trials if t.kind == "observe"), None)
        if baseline is not None and baseline.reason in ("outlived", "slower_in_trials"):
            return f"the command cannot be tried: {describe_reason(baseline)}"
        if baseline is not None and baseline.end is not TrialEnd.FINISHED:
            return f"the command fails as written: {describe_reason(baseline)}"
        return "undecided: " + _describe_best(study)
    word = OUTCOMES[study.outcome]
    if study.outcome is StudyOutcome.FASTER and study.claim is not None:
        return f"{word}: {describe_interval(study.claim, what=claimed_span(study))}"
    facts = describe_study_facts(study.reason_facts or {})
    if study.outcome is StudyOutcome.NOTHING_HELPS:
        code = study.reason or ("ruled_out" if "rules_out" in facts else "nothing_helps")
        return f"{word}: {fill(OUTCOME_REASONS.get(code), facts) or code}"
    code = study.reason or ""
    tables = (OUTCOME_REASONS, REASONS, BARE_REASONS)
    reason = next((text for one in tables if (text := fill(one.get(code), facts))), code)
    others = facts.get("others_cores")
    busy = "" if others is None else f"other programs kept {others} cores busy"
    told = "; ".join(part for part in (busy, reason) if part)
    return f"{OUTCOME_HEADS.get(code, word)}: {told}" if told else word


def _describe_best(study: Study) -> str:
    """Return the best that was seen before the end, which proves nothing yet."""
    timed = [t for t in study.trials if t.speedup is not None and t.reason is None]
    best = max(timed, key=lambda t: t.speedup.low if t.speedup else 0.0, default=None)
    if best is None or best.speedup is None or best.speedup.low <= 1:
        return "nothing faster has been found so far"
    state = describe_state(best.state)
    return f"the best so far is {state}: {describe_interval(best.speedup)}; it is not proven yet"


def describe_step_beside(study: Study) -> str | None:
    """Return the speedup of a step where it differs from the loop's; None where it does not."""
    if study.speedup is None or study.loop_speedup is None:
        return None
    text = describe_interval(study.speedup)
    return None if text == describe_interval(study.loop_speedup) else text


def describe_noise(noise_floor: float | None) -> str | None:
    """Return the study's own noise floor."""
    return None if noise_floor is None else f"noise floor {format_percent(noise_floor)}"


def describe_pace(step_s: float, samples_per_step: float | None, unit: str | None) -> str:
    """Return the time of a step, and samples per second where they are known."""
    text = f"{format_seconds(step_s)} per step"
    if samples_per_step is None or unit is None or step_s <= 0:
        return text
    rate = float(f"{samples_per_step / step_s:.3g}")
    return f"{text} · {format_count(rate)} {unit} per s"


def _value(evidence: Evidence) -> str:
    if evidence.unit == "x" and evidence.value < 1.5:  # 1.00x would say nothing
        return format_percent(evidence.value - 1)
    return format_value(evidence.value, evidence.unit)


_FACT_WORDS = ("reason", "worth")
"""Facts that are themselves machine words."""


def describe_study_facts(facts: Mapping[str, Fact]) -> dict[str, str]:
    """Return the facts of a trial or choice as people read them: with units, reasons in words."""
    told = describe_facts(facts)
    texts = {**OUTCOME_REASONS, **REASONS, **WORTH}
    return told | {n: texts.get(told[n], told[n]) for n in _FACT_WORDS if n in told}
