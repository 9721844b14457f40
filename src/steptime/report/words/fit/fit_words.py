"""The words of a fit: what begins, what was found, why a run under the limit ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steptime.core.note import Fact
from steptime.core.units import format_bytes, format_percent
from steptime.plan.values.shared_peaks import SharedPeak
from steptime.report.words.study.fact_words import describe_facts, fill
from steptime.report.words.study.study_words import (
    BARE_REASONS,
    ENDS,
    REASONS,
    SHORT_REASONS,
    describe_state,
)
from steptime.tune.values.fit_values import FitPeak, FitRun, FitStudy
from steptime.tune.values.study_values import State
from steptime.verify.values import Outcome

CATEGORIES: Mapping[str, str] = {
    "optimizer": "optimizer states",
    "inputs": "the batch",
    "others": "other tensors",
    "communication": "buckets of DDP",
    "process": "Python, torch and libraries",
    "fragmentation": "kept by the allocator",
    "context": "context of the device",
}
"""Parts whose names are no words for people; the others are."""

SHARINGS: Mapping[str, str] = {
    "ddp": "DDP",
    "zero1": "ZeRO-1 (optimizer states cut)",
    "zero2": "ZeRO-2 (gradients cut, too)",
    "fsdp": "FSDP, ZeRO-3 (weights cut, too)",
}
"""Ways in which devices share a training."""

UNKNOWN: Mapping[str, str] = {
    "ended_by_the_memory_here": "the command as written ran out of the memory that is free here",
    "allocator_not_seen": "what the C allocator keeps is a guess from other trainings",
    "ranks_beside": "what a process keeps besides its tensors while ranks exchange gradients was "
    "seen in one training",
    "no_anatomy": "no process said who holds the memory",
    "largest_to_come": "the largest batch of the epoch had not come: its peak is a forecast, and "
    "runs under the limit see it from their second batch on",
    "larger_steps": "steps that were not seen may be larger",
    "no_process_memory": "the system does not say what a process has",
    "context_of_the_device": "what the device's context takes differs between releases",
}

FORECAST_UNKNOWN: Mapping[str, str] = {
    "never_steps": "no forecast: no step was made on tensors without memory",
    "script_failed": "no forecast: the script failed on tensors without memory",
    "time_limit": "no forecast: it took too long",
    "out_of_memory": "no forecast: what the script holds besides its model is too much for this "
    "machine",
    "nothing_followed": "no forecast: no second step was seen",
    "no_fake_kernel": "no forecast: the output shapes of an operator are not known",
    "no_fake_tensors": "no forecast: this release of torch has no tensors without memory that are "
    "known here",
    "no_fake_ranks": "no forecast: this release of torch has no process group that exchanges "
    "nothing",
    "failed": "no forecast, by a fault of Steptime",
    "made_up_size": "a size that depends on values is a guess",
    "made_up_value": "a value that may decide what runs is a guess",
}
"""What a forecast does not know."""

FIT_REASONS: Mapping[str, str] = {
    "machine_short": "the machine had hardly any memory left, so the trial was ended",
    "out_of_memory": "it asked for more than the limit",
    "does_not_fit": "it does not fit by any setting that is known here",
    "cannot_run_as_written": (
        "the command as written does not run in the memory that is free here, so there is nothing "
        "to compare the training with"
    ),
    "budget": "the time that --budget gives was over",
    "quality": "the training was not proven to be as good with these settings",
    "no_steps": "no training step was seen",
    "machine_too_small": "what should fit into the limit needs more memory than is free here",
    "on_a_device": "it trains on a device whose allocator did not say what it held",
    "not_limited": "torch's allocator held more than the limit, or did not say what it held",
}


def describe_beginning(what: str, state: State) -> str:
    """Say what begins now."""
    if what == "observe":
        return "running the command as written, to see what it needs"
    if what == "forecast":
        return "it ran out of the memory here: forecasting its peak on tensors without memory"
    if what == "needs":
        return f"running without the limit, to see what it needs: {describe_state(state)}"
    if what == "batch":
        return "there is room: giving the training larger batches, in turns with its own"
    levers = describe_state(state) if state else "the command as written"
    if what == "quality":
        return f"comparing whole trainings with {levers}"
    return f"running under the limit: {levers}"


def describe_category(name: str) -> str:
    """Return who holds a part of the memory, in words."""
    return CATEGORIES.get(name, name)


def describe_answer(study: FitStudy) -> str:
    """Say in one sentence whether it fits, and whether it was made to."""
    limit = format_bytes(study.limit_bytes)
    if study.is_interrupted:
        return "interrupted: what was found so far is below"
    if study.peak is None:
        return f"no answer: {describe_reason(study.reason, study.reason_facts)}"
    if study.fits and study.is_made_to_fit:
        return f"it fits into {limit} as written; the recipe uses what is free"
    if study.fits:
        return f"it fits into {limit} as written"
    if study.is_made_to_fit:
        return f"it does not fit into {limit} as written; with the recipe it does"
    if study.recipe and study.reason == "cannot_run_as_written":
        levers = describe_state(study.recipe)
        return f"it runs in {limit} with {levers}; its quality could not be compared here"
    if study.recipe:
        return f"it runs in {limit} with {describe_state(study.recipe)}, but that is not proven"
    if study.fits is None and study.reason == "machine_too_small":
        return f"it is not known whether it fits into {limit}: this machine has too little memory"
    if study.fits is False and study.reason == "budget":
        return f"it does not fit into {limit} as written; the time was over before it was made to"
    if study.short_bytes is not None:
        return (
            f"it does not fit into {limit} by any setting known here: short by "
            f"{format_bytes(study.short_bytes)}"
        )
    if study.reason == "does_not_fit":
        return (
            f"it does not fit into {limit} by any setting known here: what should have fitted was "
            "run and ran out of memory, so it is not known how much is missing"
        )
    return f"it is not known whether it fits into {limit}"


def describe_limit(study: FitStudy) -> str:
    """Say what the limit is, and what it counts."""
    size = format_bytes(study.limit_bytes)
    if study.part is not None:
        return f"{size}, what a program may have on {study.part}, its context included"
    if study.limit_counts == "device":
        whole = ", all that it has" if study.limit_from == "machine" else ""
        return f"{size} of the device's memory, its context included{whole}"
    origin = ", what is free here" if study.limit_from == "machine" else ""
    return f"{size} of private memory a process{origin}"


def describe_batch(study: FitStudy) -> str | None:
    """Say how much larger the micro-batch could be, as written; None where that is no news."""
    factor = study.batch_factor
    if factor is None or factor < LEAST_ROOM:
        return None
    return f"room for a micro-batch about {factor:.1f} times as large, by what grows with it"


def describe_sharing(found: SharedPeak, limit_bytes: int) -> tuple[str, str, str]:
    """Return how devices share the training, what each holds, and whether that fits."""
    fits = (
        "fits"
        if found.bytes <= limit_bytes
        else f"{format_bytes(found.bytes - limit_bytes)} too much"
    )
    return SHARINGS.get(found.sharing, found.sharing), format_bytes(found.bytes), fits


LEAST_ROOM = 1.2
"""Less room than this is within what an estimate may be off."""


def describe_peak(peak: FitPeak) -> str:
    """Say how much the command needs as written, and how sure that is."""
    ends = f"{format_bytes(peak.low)} to {format_bytes(peak.high)}"
    least = "at least " if peak.how == "at_least" else ""
    text = f"{least}{format_bytes(peak.estimate)} as written ({ends})"
    unknown = "; ".join(describe_unknown(word) for word in peak.unknown)
    return f"{text}; {unknown}" if unknown else text


def describe_ranks(study: FitStudy) -> str | None:
    """Say what the tensors of each rank need, as forecast; None where that is not known."""
    ranks = study.ranks
    if not ranks:
        return None
    told: dict[str, list[int]] = {}
    for one in ranks:
        told.setdefault(format_bytes(one.estimate), []).append(one.rank)
    texts = []
    for size, numbers in told.items():
        names = "each rank" if len(numbers) == len(ranks) else name_ranks(numbers)
        texts.append(f"{names} {size}")
    return f"of {len(ranks)} ranks, tensors of {', '.join(texts)}, forecast"


def name_ranks(numbers: Sequence[int]) -> str:
    """Return numbers of ranks as they are named: `rank 3`, `ranks 1 to 7`, `ranks 0, 4, 5`."""
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    first, last = numbers[0], numbers[-1]
    if len(numbers) > 2 and last - first == len(numbers) - 1:
        return f"ranks {first} to {last}"
    return f"ranks {', '.join(map(str, numbers))}"


def describe_unknown(word: str) -> str:
    """Say what is not known of a peak; a forecast's words may have a colon and a detail."""
    name, _, detail = word.partition(": ")
    text = UNKNOWN.get(name, FORECAST_UNKNOWN.get(name, name))
    return f"{text} ({detail})" if detail else text


def describe_quality_of(study: FitStudy) -> str | None:
    """Say whether the training is as good with the recipe; None where that was not asked."""
    if not study.recipe:
        return None
    if study.quality is None:
        return f"not judged: {describe_reason(study.reason, study.reason_facts)}"
    words = {
        Outcome.PASS: "PASS: the training is as good as the one as written",
        Outcome.FAIL: "FAIL: the training is not as good",
        Outcome.INCONCLUSIVE: "INCONCLUSIVE: it cannot be told whether the training is as good",
    }
    level = f" (level {study.quality.level})" if study.quality.level else ""
    return words[study.quality.outcome] + level


def describe_run_end(run: FitRun) -> str:
    """Say how a run under the limit ended."""
    if run.is_well:
        return f"trained for {run.num_steps} steps"
    if run.reason in FIT_REASONS or run.reason in REASONS:
        return describe_reason(run.reason, run.facts)
    return ENDS[run.end]


def describe_reason(reason: str | None, facts: Mapping[str, Fact] | None) -> str:
    """Return the sentence of a reason, without the facts where these are not known."""
    if reason is None:
        return "no reason is known"
    if reason in FIT_REASONS:
        return FIT_REASONS[reason]
    told = describe_facts(facts or {})
    texts = (table.get(reason) for table in (REASONS, SHORT_REASONS, BARE_REASONS))
    return next((text for one in texts if (text := fill(one, told))), reason)


def describe_cost(fraction: float) -> str:
    """Say how much longer a step takes, as estimated."""
    if abs(fraction) < 0.005:
        return "nothing"
    return f"{format_percent(fraction)} longer" if fraction > 0 else "a shorter step"
