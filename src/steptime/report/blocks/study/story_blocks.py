"""Tells a study in order: why each thing was done; also lists the studies.

In: a Study. Out: blocks. One table has one sentence per machine word; the facts of a choice are in
braces.
"""

from __future__ import annotations

from collections.abc import Mapping

from steptime.core.printable import printable
from steptime.report.blocks.values import Block, Items
from steptime.report.words.study import study_words as words
from steptime.report.words.study.fact_words import fill
from steptime.tune.values.study_values import Choice, Study

# Why each thing was done, by the code of the choice; `{lever}` is its lever.
CHOICES: Mapping[str, str] = {
    "noise_floor": (
        "The command was compared with itself {n} times. A difference below {wall} of the time per "
        "sample cannot be seen."
    ),
    "no_noise_floor": "The noise could not be measured in {n} comparisons: {reason}.",
    "offered": "{lever} applies here. It could give at most {headroom}.",
    "processes_first": "{levers} is tried first, because it relieves the bottleneck.",
    "alone": "{lever} alone, over the reference: {speedup} ({low} to {high}, n = {n}), {worth}.",
    "halved": "{state} was given up, because other settings of the lever are faster.",
    "pruned": "{state} was stopped, because it could no longer win.",
    "first": "The search builds on {lever}, which gives most by itself.",
    "added": "{lever} was added: {speedup} ({low} to {high}, n = {n}).",
    "not_added": "{lever} was not added: {reason}.",
    "ordered": "The diagnosis is {bottleneck}. In this order: {levers}.",
    "learned": (
        "{studies} earlier studies of this script ran here. What helped comes first: {helped}. "
        "What failed waits until nothing else is proven: {waits}."
    ),
    "bundle": "Tried together: {state}: {speedup} ({low} to {high}, n = {n}), {worth}.",
    "bundle_fails": "{state} could not run together: {reason}. Each half was tried.",
    "bundle_in_turns": "Tried together, in processes of their own: {state}: {speedup} (n = {n}).",
    "dropped": (
        "Without {state} the others are as fast or faster: it gives {speedup} ({low} to {high}, "
        "n = {n}) beside them, so it was taken out."
    ),
    "kept": "{state} gives {speedup} beside the others ({low} to {high}, n = {n}).",
    "left_out": "{lever} gives {speedup} beside the others (n = {n}), so it was taken out.",
    "stays": "{lever} gives {speedup} beside the others (n = {n}).",
    "not_told_apart": "What each of these gives by itself is not known: {state}.",
    "earned": (
        "{lever} costs {one_off_s} once, and earns it back after {steps} steps. The run has "
        "{run_steps}."
    ),
    "not_earned": (
        "{lever} costs {one_off_s} once, and earns it back only after {steps} steps. The run has "
        "{run_steps}."
    ),
    "refused": "{state} was refused: the verdict on its quality is {outcome}.",
    "harmful": "{state} was left out, because it makes the training worse.",
    "quality_undecided": (
        "{state} was left out, because it is not certain that the training stays as good."
    ),
    "challenged": (
        "{proven} is proven; {state} seemed faster yet, or as fast with fewer levers, so it was "
        "confirmed as well."
    ),
    "slowed_beside": (
        "In one process with {state}, the command as written took {speedup} the time that it takes "
        "by itself: that is no gain. Processes in turns decide, or it was taken off."
    ),
    "harmful_together": "{state} does harm only together, so {lever} was taken out.",
    "confirmed": "Fresh repeats confirmed {state}: {speedup} ({low} to {high}, n = {n}).",
    "within_epoch": (
        "An epoch has {steps} steps, and no trial saw its end. Starting it took {start_s} as "
        "written; what comes between epochs is not in the speedup."
    ),
    "shown_between": (
        "Processes with and without {state}, in turns, showed it too: {speedup} ({low} to {high}, "
        "n = {n})."
    ),
    "not_confirmed": "{state} could not be confirmed: {reason}.",
    "not_compiled": (
        "The search continued with {state} alone: {lever} costs each process of a confirmation so "
        "much that there was no time for it."
    ),
    "live_levers_alone": (
        "The search continued with {state} alone, because {without} would need processes of its "
        "own to be confirmed."
    ),
    "out_of_time": "There was no time left for more ({phase}).",
    "too_expensive": (
        "It was not tried: to try and to prove it should take {price_s}, and {left_s} were left "
        "beside the others."
    ),
    "ends": "The study ends here: {reason}.",
}


def story_blocks(study: Study) -> list[Block]:
    """Return every choice in order, each with why it was made."""
    told = [printable(describe_choice(choice)) for choice in study.choices]
    return [Items(told, is_numbered=True)] if told else []


def describe_choice(choice: Choice) -> str:
    """Return the sentence of a choice, or its code and facts if there is no sentence for them."""
    facts = words.describe_study_facts(choice.facts or {})
    sentence = fill(CHOICES.get(choice.code), {"lever": choice.lever or "it", **facts})
    if sentence is not None:
        return sentence[:1].upper() + sentence[1:] if choice.lever is None else sentence
    listed = ", ".join(f"{name} {value}" for name, value in facts.items())
    return " ".join(part for part in (choice.code, choice.lever, listed) if part)
