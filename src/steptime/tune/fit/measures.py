"""What would free memory here: each lever that can, with what it keeps of each part and its cost.

In: what a trial of the command as written showed, and the levers. Out: options, and the levers that
cannot be used here with the reason. These are estimates; what counts is the run under the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from steptime.levers.base import Facts, Lever, Preserves, Settings
from steptime.levers.memory.block_choice import choose
from steptime.levers.memory.selective_checkpointing import settings_of
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.anatomy import Anatomy
from steptime.tune.fit.choose import Lessons, Option, estimate
from steptime.tune.fit.held_parts import FRAGMENTATION, Parts, total_of
from steptime.tune.search.bench import Baseline
from steptime.tune.values.fit_values import FitMeasure
from steptime.tune.values.study_values import Applied, NotTried

SHORT = 1.0
"""The fraction of the memory that is held, as levers are told: a limit is what makes it short."""

FORWARD_FRACTION = 1 / 3
"""The forward's share of a step where it was not seen: a backward takes twice as long."""

UNSEEN_FREES = 0.7
"""Of the activations, what checkpointing every block frees where no block was measured: their
inputs stay, and one block at a time is there in full."""

WANTED = (0.25, 0.4, 0.55, 0.7, 0.85)
"""Of what the blocks keep: parts that the solver is asked to free."""

RETURNED = 0.85
"""Of what the C allocator kept, the part that goes back with a fixed threshold (an MLP's peak)."""

COST_OF_RETURNING = 0.03
"""More CPU time for clearing pages again (the same MLP)."""

COST_OF_A_PART = 0.01
"""Of a step: operators start once for each part."""

COST_OF_SLOW_BF16 = 0.5
"""On a processor without arithmetic in bf16 it is emulated; a guess, and the run says it."""

COST_OF_SINGLE_UPDATES = 0.02
"""An optimizer that starts once for each weight; a guess, and the run says it."""

COST_OF_OFFLOADING = 0.3
"""Copies over the bus that computing does not hide; a guess, and the run says it."""

CHANGES_TRAINING = "changes_training"

RECOMPUTES = "recomputes"
"""Kind of the options that keep less and compute it again: one of them at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitGround:
    """What options are made from: facts of a machine that is short of memory, and the parts."""

    facts: Facts
    parts: Parts
    anatomy: Anatomy | None
    forward_fraction: float
    step_s: float | None


Found = Sequence[tuple[Settings, Mapping[str, float], float]]
"""Settings, what is kept of each part, and the cost."""

Maker = Callable[[Lever, FitGround], Found]


def make_ground(baseline: Baseline, parts: Parts) -> FitGround:
    """Return what options are made from."""
    facts = replace(baseline.facts, memory_fraction=SHORT)
    measurement = baseline.measurement
    return FitGround(
        facts=facts,
        parts=parts,
        anatomy=measurement.memory,
        forward_fraction=forward_fraction(measurement),
        step_s=step_s_of(measurement),
    )


def forward_fraction(measurement: Measurement) -> float:
    """Return the share of a step that computing the forward again would add."""
    by_name = {phase.name: phase.fraction for phase in measurement.phases}
    return by_name.get("forward") or FORWARD_FRACTION


def step_s_of(measurement: Measurement) -> float | None:
    """Return the median time of a step [s]; None where none was timed."""
    steady = measurement.steady
    found = None if steady is None else steady.step_time_s
    return None if found is None else found.estimate


def find_options(
    ground: FitGround, levers: Sequence[Lever], *, excluded: Sequence[str] = ()
) -> tuple[tuple[Option, ...], tuple[NotTried, ...]]:
    """Return the options there are, and the levers that free memory but cannot be used here."""
    options: list[Option] = []
    refused: list[NotTried] = []
    for lever in levers:
        if lever.name not in MAKERS:
            continue
        if lever.name in excluded:
            refused.append(NotTried(name=lever.name, reason="excluded"))
            continue
        if lever.preserves.value == Preserves.NOTHING.value:
            refused.append(NotTried(name=lever.name, reason=CHANGES_TRAINING))
            continue
        reason = lever.applies(_facts_for(lever.name, ground.facts))
        if reason is not None:
            refused.append(NotTried(name=lever.name, reason="does_not_apply", text=reason))
            continue
        options += _options_of(lever, ground)
    return tuple(options), tuple(refused)


def _options_of(lever: Lever, ground: FitGround) -> list[Option]:
    found = []
    for settings, keeps, cost in MAKERS[lever.name](lever, ground):
        here = lever.class_here(ground.facts, settings) or lever.preserves
        option = Option(
            applied=Applied(name=lever.name, settings=settings),
            keeps={name: keep for name, keep in keeps.items() if name in ground.parts},
            cost_fraction=cost,
            preserves=Preserves(here),
            kind=KINDS.get(lever.name, lever.name),
        )
        if frees(ground.parts, option) > 0:
            found.append(option)
    return found


def _facts_for(name: str, facts: Facts) -> Facts:
    """Return the facts that a lever is asked with: autocast saves memory where it is slow, too."""
    return replace(facts, capabilities=None) if name == "autocast" else facts


def frees(parts: Parts, option: Option) -> int:
    """Return what an option frees of the peak, used alone [bytes]."""
    return total_of(parts) - estimate(parts, (option,), Lessons())


def as_measures(parts: Parts, options: Sequence[Option]) -> tuple[FitMeasure, ...]:
    """Return the options as people and programs read them, the cheapest first."""
    found = [
        FitMeasure(
            name=option.applied.name,
            settings=option.applied.settings,
            frees_bytes=frees(parts, option),
            cost_fraction=option.cost_fraction,
            preserves=option.preserves.value,
        )
        for option in options
    ]
    return tuple(sorted(found, key=lambda one: (one.cost_fraction, -one.frees_bytes)))


# -- one function for each lever


def _return_freed(lever: Lever, ground: FitGround) -> Found:
    return [({}, {FRAGMENTATION: 1 - RETURNED}, COST_OF_RETURNING)]


def _allocator(lever: Lever, ground: FitGround) -> Found:
    """A device's memory in pieces; the allocators of the CPU keep more, not less."""
    if ground.facts.device != "cuda":
        return []
    return [({"library": "cuda_expandable"}, {FRAGMENTATION: 0.1}, 0.0)]


def _autocast(lever: Lever, ground: FitGround) -> Found:
    anatomy = ground.anatomy
    part = None if anatomy is None else anatomy.part("activations")
    wide = 1.0
    if part is not None and part.bytes:
        wide = (part.by_dtype or {}).get("fp32", 0) / part.bytes
    words = ground.facts.capabilities
    is_fast = words is None or any(word in words for word in ("amx_bf16", "avx512_bf16"))
    cost = 0.0 if is_fast or ground.facts.device != "cpu" else COST_OF_SLOW_BF16
    keep = 1 - wide / 2
    return [({"dtype": "bf16"}, {"activations": keep, "temporaries": keep}, cost)]


def _micro_batches(lever: Lever, ground: FitGround) -> Found:
    """All but the results of the parts is computed again, one part at a time."""
    return [
        (
            {"parts": parts, "recompute": True},
            {"activations": 1 / parts, "temporaries": 1 / parts},
            ground.forward_fraction + COST_OF_A_PART * parts,
        )
        for parts in (2, 4, 8, 16)
    ]


def _checkpointing(lever: Lever, ground: FitGround) -> Found:
    """Blocks keep their inputs; one block at a time is there in full."""
    found = []
    for every in (2, 1):
        settings = {"every": every}
        size = None if lever.frees is None else lever.frees(ground.facts, settings)
        keep = (1 - UNSEEN_FREES / every) if size is None else _left_of(ground, "activations", size)
        found.append((settings, {"activations": keep}, ground.forward_fraction / every))
    return found


def _selective(lever: Lever, ground: FitGround) -> Found:
    """The choices of the solver, by what was measured of each block."""
    blocks = ground.facts.blocks or ()
    total = sum(one.kept_bytes for one in blocks)
    found = []
    for part in WANTED:
        choice = choose(blocks, round(part * total)) if total else None
        if choice is not None and (choice.whole or choice.partly):
            keep = _left_of(ground, "activations", choice.frees_bytes)
            cost = choice.takes_s / ground.step_s if ground.step_s else ground.forward_fraction
            found.append((settings_of(choice), {"activations": keep}, cost))
    return found


def _of_part(name: str, cost: float) -> Maker:
    """Return what makes options of a lever that frees one part, by its own estimate."""

    def make(lever: Lever, ground: FitGround) -> Found:
        found = []
        for settings in lever.space(ground.facts):
            size = None if lever.frees is None else lever.frees(ground.facts, settings)
            keep = 0.0 if size is None else _left_of(ground, name, size)
            found.append((settings, {name: keep}, cost))
        return found

    return make


def _left_of(ground: FitGround, name: str, freed_bytes: int) -> float:
    """Return the share of a part that is left when so many bytes of it are freed."""
    held = ground.parts.get(name, 0.0)
    return max(0.0, 1 - freed_bytes / held) if held else 1.0


MAKERS: Mapping[str, Maker] = {
    "return_freed_memory": _return_freed,
    "allocator": _allocator,
    "autocast": _autocast,
    "micro_batches": _micro_batches,
    "activation_checkpointing": _checkpointing,
    "selective_checkpointing": _selective,
    "optimizer_in_backward": _of_part("gradients", COST_OF_SINGLE_UPDATES),
    "no_foreach": _of_part("temporaries", COST_OF_SINGLE_UPDATES),
    "offload_activations": _of_part("activations", COST_OF_OFFLOADING),
    "low_memory_states": _of_part("optimizer", 0.0),
}
"""The levers that free memory."""

KINDS = dict.fromkeys(
    ("micro_batches", "activation_checkpointing", "selective_checkpointing"), RECOMPUTES
)
