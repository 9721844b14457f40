"""Makes the blocks on who holds the memory, and on what would make a run fit.

In: the document of a run. Out: blocks. What was not measured is left out here, and the document of
--json has its reason; estimates are called estimates.
"""

from __future__ import annotations

from collections.abc import Mapping

from steptime.core.printable import printable
from steptime.core.units import format_bytes, format_count, format_percent
from steptime.measure.values.model.anatomy import (
    PARTS,
    Anatomy,
    Death,
    Growth,
    HighWater,
    MemoryPart,
    RunPeak,
)
from steptime.measure.values.observations import MemoryUse
from steptime.plan.values import MemoryFit, Remedy
from steptime.report.blocks.colors import color_of
from steptime.report.blocks.phrasing import joined
from steptime.report.blocks.run.empty_run import ran_out
from steptime.report.blocks.values import Block, Curve, Labeled, LinePlot, Shade, TableBlock
from steptime.report.blocks.work.longest_words import describe_longest
from steptime.report.document.run_document import RunDocument

_WORTH_NAMING = 0.01
"""A fraction of all that is shown; smaller parts share a word."""

_GROWN = 0.1
"""A fraction of the growth: if tensors grew by less than that, they do not explain it."""

MAX_REMEDIES = 6

NAMES: Mapping[str, str] = {
    "optimizer": "optimizer states",
    "inputs": "the batch",
    "others": "other tensors",
    "communication": "buckets of DDP",
    "context": "device context and other programs",
    "fragmentation": "reserved but not allocated",
}

MISSING: Mapping[str, str] = {
    "no_update_seen": "no update was done",
    "no_backward_seen": "no backward call was reached",
    "not_applicable_on_cpu": "there is no device",
    "not_followed": "no step was followed",
    "no_ddp_seen": "no model of DDP was seen",
    "compiled": "the script compiles",
    "failed": "the probe failed; the failures of Steptime are in the record",
}

REMEDIES: Mapping[str, str] = {
    "expandable_segments": "PYTORCH_ALLOC_CONF=expandable_segments:True against fragmentation",
    "half_micro_batch": "half the micro-batch, twice the gradient accumulation",
    "chunked_loss": "a loss that is computed in chunks of tokens",
    "activation_checkpointing": "activation checkpointing of each block (a fifth slower or more)",
    "autocast_bf16": "bf16 autocast (other rounding)",
    "optimizer_8bit": "an 8-bit optimizer (other updates)",
    "bf16_weights": "weights, gradients and states in bf16 (another training)",
    "sharding": "states sharded over 2 devices (ZeRO, FSDP)",
}


def brief_memory(document: RunDocument) -> list[Block]:
    """Say in one line how much was held at most, and by what."""
    found = document.measurement.memory
    peak = _resident_peak(document)
    told = [] if peak is None else [f"peak RSS {format_bytes(peak)}"]
    if found is not None and document.memory_fit is not None:
        sizes = _held_at_most(found)
        large = sorted(sizes.items(), key=lambda one: -one[1])[:_MOST_BRIEF]
        told.append(f"{format_bytes(sum(sizes.values()))} in tensors")
        told += [f"{NAMES.get(name, name)} {format_bytes(size)}" for name, size in large]
    return [Labeled("memory", joined(map(printable, told)))] if told else []


def _held_at_most(found: Anatomy) -> Mapping[str, int]:
    """Return what was held by part at the end, at the peak, or where nothing else is known."""
    if found.death is not None:
        return found.death.by_part
    if found.timeline is not None:
        return found.timeline.peak.by_part
    return {part.name: part.bytes for part in found.parts if part.bytes}


def _resident_peak(document: RunDocument) -> int | None:
    known = [rank.host_memory for rank in document.measurement.ranks]
    return max((one.peak_bytes for one in known if one is not None), default=None)


def memory_blocks(document: RunDocument) -> list[Block]:
    """Say what holds the memory, largest first; return no lines if no process reported it."""
    found, fit = document.measurement.memory, document.memory_fit
    if found is None or fit is None:
        return []
    is_one = document.measurement.num_ranks == 1
    texts = (
        _describe_run(found.run_peak, is_one=is_one),
        _describe_holders(found),
        _describe_parameters(found, fit),
        _describe_host(found),
        _describe_last(found.death),
        _describe_growth(found.growth),
        describe_longest(document.measurement, is_dead=found.death is not None),
    )
    lines: list[Block] = []
    for text in texts:
        if text:
            lines += [Labeled("" if lines else "memory", printable(text))]
    return lines


def _describe_run(peak: RunPeak | None, *, is_one: bool) -> str:
    """Return the largest peak of all steps where they differ, and how it is known."""
    if peak is None or _is_alike(peak):
        return ""
    size, followed = format_bytes(peak.bytes), _describe_followed(peak)
    step = f"in step {peak.step}" if is_one else f"in step {peak.step} of rank {peak.rank}"
    if peak.how == "at_least":
        text = f"at least {size} at the peak of the run, {step}: {followed}, and "
        text += _GROWS if peak.grows else "what others reach is not known from their size"
    else:
        text = f"{size} at the peak of the run, {step}"
        if peak.differs:
            text += f"; steps reach {format_bytes(peak.low_bytes)} to {size}"
        known = "" if peak.how == "followed" else ", the others computed from their size"
        text += f" · {followed}{known}"
        if peak.error_fraction is not None:
            text += f" (error for one left out: {format_percent(peak.error_fraction)})"
    if _is_higher_before(peak):
        text += f" · {format_bytes(peak.warmup_bytes or 0)} before the steady window"
    return text


_GROWS = "what is held grows from step to step"


def _is_alike(peak: RunPeak) -> bool:
    return peak.how != "at_least" and not peak.differs and not _is_higher_before(peak)


def _is_higher_before(peak: RunPeak) -> bool:
    return (peak.warmup_bytes or 0) > peak.bytes * (1 + _WORTH_NAMING)


def _describe_followed(peak: RunPeak) -> str:
    return "1 step followed" if peak.num_followed == 1 else f"{peak.num_followed} steps followed"


def _describe_host(found: Anatomy) -> str:
    """Say what lies outside of tensors, and in other processes: `resident 1.02 GiB · ...`."""
    parts = []
    if found.resident_bytes is not None:
        reached = _describe_reached(found.resident_peak)
        parts.append(f"resident at most {format_bytes(found.resident_bytes)}{reached}")
    if found.device_peak is not None:
        size, reached = format_bytes(found.device_peak.bytes), _describe_reached(found.device_peak)
        parts.append(f"on the device at most {size}{reached}")
    if found.worker_bytes is not None:
        parts.append(f"the loader's workers {format_bytes(found.worker_bytes)}")
    loader = found.loader
    if loader is not None and loader.num_waiting:
        kind = "pinned batches" if loader.is_pinned else "batches"
        size = format_bytes(loader.batch_bytes)
        parts.append(f"up to {loader.num_waiting} {kind} of {size} waiting")
    return " · ".join(parts)


def _describe_reached(mark: HighWater | None) -> str:
    """Return ` (reached in steps 12 to 40)`, or that it was before the steady window or later."""
    if mark is None:
        return ""
    if mark.warmup_bytes == mark.bytes:
        return " (reached before the steady window)"
    if mark.first_step is None:
        return " (reached after the steps)"
    if mark.last_step in (None, mark.first_step):
        return f" (reached in step {mark.first_step})"
    return f" (reached in steps {mark.first_step} to {mark.last_step})"


def _describe_growth(growth: Growth | None) -> str:
    """Say what grows: tensors that the script keeps, or memory that torch does not know of."""
    if growth is None:
        return ""
    head = f"{format_bytes(growth.held_bytes)} more was held {growth.num_updates} updates later"
    if growth.largest is None or growth.tensor_bytes < _GROWN * growth.held_bytes:
        return f"{head}, and it is not in tensors"
    return (
        f"{head}; tensors that the script keeps grew by {format_bytes(growth.tensor_bytes)}, most "
        f"of it {growth.largest_num} of {growth.largest}"
    )


def _describe_holders(found: Anatomy) -> str:
    """Return `peak 1.92 GiB in the backward of GPT.blocks.3: optimizer states 948 MiB, ...`."""
    timeline = found.timeline
    if found.death is not None:
        total = sum(found.death.by_part.values())
        return f"{format_bytes(total)} was held at the end: {list_parts(found.death.by_part)}"
    if timeline is not None:
        place = f" of {timeline.module}" if timeline.module else ""
        which = _describe_step(found.run_peak)
        head = f"{format_bytes(timeline.peak.total)} at the peak of {which}{timeline.peak.phase}"
        return f"{head}{place}: {list_parts(timeline.peak.by_part)}"
    sizes = {part.name: part.bytes for part in found.parts if part.bytes}
    text = f"{format_bytes(sum(sizes.values()))} seen: {list_parts(sizes)}"
    if found.moment != "update":
        text += f" (looked at before the {_NEXT.get(found.moment, 'first update')})"
    return text


def _describe_last(death: Death | None) -> str:
    """Return what the last steps held before the process died, and where the snapshot is."""
    if death is None:
        return ""
    texts = []
    known = [one.peak_bytes for one in death.last_steps if one.peak_bytes is not None]
    if known:
        first, last = death.last_steps[0].step, death.last_steps[-1].step
        low, high = format_bytes(min(known)), format_bytes(max(known))
        sizes = low if low == high else f"{low} to {high}"
        texts.append(f"steps {first} to {last}, the last before it, held {sizes} at their peaks")
    if death.snapshot is not None:
        texts.append(
            f"torch's own snapshot is {death.snapshot} in the run's folder: open it at "
            "docs.pytorch.org/memory_viz"
        )
    return " · ".join(texts)


def _describe_step(peak: RunPeak | None) -> str:
    """Return which step the timeline shows."""
    if peak is None:
        return "a step, in "
    if not _is_alike(peak):
        return "the step that was followed first, in "
    return f"a step ({_describe_followed(peak)}), in "


_NEXT = {"call": "first forward", "backward": "first backward"}


def list_parts(sizes: Mapping[str, int]) -> str:
    """List the parts with their sizes, the largest first and the small ones together."""
    total = sum(sizes.values())
    ordered = sorted(sizes.items(), key=lambda item: -item[1])
    large = [(n, b) for n, b in ordered if b >= _WORTH_NAMING * total]
    rest = total - sum(size for _, size in large)
    words = [f"{NAMES.get(name, name)} {format_bytes(size)}" for name, size in large]
    return ", ".join([*words, *([f"the rest {format_bytes(rest)}"] if rest else [])])


def _describe_parameters(found: Anatomy, fit: MemoryFit) -> str:
    """Return `16.0 bytes per parameter (124 million; AdamW): ...`, and what other modes take."""
    now = fit.bytes_per_parameter
    if now is None:
        return ""
    optimizer = ", ".join(dict.fromkeys(found.optimizers))
    text = f"{format_count(found.num_parameters)} parameters at {now:.1f} bytes each"
    if optimizer:
        text += f" ({optimizer})"
    known = [mode for mode in fit.would_take if mode.name in _NAMED]
    less = [mode for mode in known if mode.bytes_per_parameter < now - 0.5]
    if less:
        named = " and ".join(f"{mode.bytes_per_parameter:g} ({mode.name})" for mode in less)
        text += f" · others would take {named}"
    return text


_MAX_MODULES, _MOST_BRIEF = 8, 2

_NAMED = ("fp32, 8-bit AdamW", "pure bf16, AdamW")
"""The modes that a line has room for; the others are in the document of --json."""


def fit_blocks(document: RunDocument) -> list[Block]:
    """Say what would make the run fit where memory ran out, the cheapest first."""
    if document.memory_fit is None or not ran_out(document.measurement):
        return []
    lines: list[Block] = []
    for one in document.memory_fit.remedies[:MAX_REMEDIES]:
        lines += [Labeled("" if lines else "would fit", _describe_remedy(one))]
    return lines


def _describe_remedy(one: Remedy) -> str:
    text = REMEDIES.get(one.name, one.name)
    if one.frees_bytes is None:
        return text
    text += f": frees about {format_bytes(one.frees_bytes)}"
    if one.is_enough is None:
        return text
    return text + (", enough for what was asked for" if one.is_enough else ", not enough alone")


def memory_tables(document: RunDocument) -> list[Block]:
    """Return who holds what, by part and module, and each rank's memory."""
    found = document.measurement.memory
    tables = [] if found is None else _anatomy_tables(found)
    heading = ["rank", "memory", "at first", "at last", "peak", "growth per step", "limit"]
    rows = [
        [f"{rank.rank}", where, *_use_cells(use)]
        for rank in document.measurement.ranks
        for where, use in (
            ("resident", rank.host_memory),
            ("allocated on the device", rank.device_memory),
        )
        if use is not None
    ]
    return [*tables, *([TableBlock(heading, rows, left=2, name="Memory")] if rows else [])]


def _anatomy_tables(found: Anatomy) -> list[Block]:
    peak = {} if found.timeline is None else found.timeline.peak.by_part
    rows = [_part_cells(part, peak.get(part.name)) for part in found.parts]
    heading = ["part", "types", "bytes", "at the peak"]
    return [
        TableBlock(heading, rows, left=2, name="What holds the memory"),
        *_modules_table(found),
    ]


def _use_cells(use: MemoryUse) -> list[str]:
    slope = use.slope_bytes_per_step
    is_sure = slope is not None and (slope.low > 0 or slope.high < 0)
    growth = format_bytes(slope.estimate) if slope is not None and is_sure else "none seen"
    return [
        format_bytes(use.first_bytes),
        format_bytes(use.last_bytes),
        format_bytes(use.peak_bytes),
        "–" if slope is None else growth,
        "–" if use.limit_bytes is None else format_bytes(use.limit_bytes),
    ]


def _part_cells(part: MemoryPart, at_peak: int | None) -> list[str]:
    name = NAMES.get(part.name, part.name) + (", this rank's part" if part.is_sharded else "")
    if part.bytes is None:
        reason = MISSING.get(part.missing or "", part.missing or "")
        return [name, f"not measured: {reason}", "–", "–"]
    by_dtype = part.by_dtype or {}
    ordered = sorted(by_dtype.items(), key=lambda item: -item[1])
    types = ", ".join(f"{dtype} {format_bytes(size)}" for dtype, size in ordered)
    peak = "–" if at_peak is None else format_bytes(at_peak)
    return [name, types, format_bytes(part.bytes), peak]


def _modules_table(found: Anatomy) -> list[Block]:
    if not found.by_module:
        return []
    rows = [
        [kept.name, kept.kind or "", format_bytes(kept.bytes)]
        for kept in found.by_module[:_MAX_MODULES]
    ]
    heading = ["module", "class", "kept for the backward"]
    return [TableBlock(heading, rows, left=2, name="Saved activations by module")]


def timeline_plot(found: Anatomy | None) -> list[Block]:
    """Draw who holds the memory over one step, as areas on top of each other, and the peak."""
    timeline = None if found is None else found.timeline
    if timeline is None:
        return []
    instants, peak = timeline.instants, timeline.peak
    begins = [one.at_fraction for one in instants]
    ends = [max(pair) for pair in zip(begins, [*begins[1:], 1.0], strict=True)]
    xs = [x for pair in zip(begins, ends, strict=True) for x in pair]  # it holds until the next
    below, curves = [0.0] * len(instants), []
    for name in (n for n in PARTS if any(one.by_part.get(n) for one in instants)):
        above = [b + one.by_part.get(name, 0) for b, one in zip(below, instants, strict=True)]
        spread = [pair for pair in zip(below, above, strict=True) for _ in range(2)]
        color, points = color_of(name), [(x, None) for x in xs]
        curves.append(Curve(NAMES.get(name, name), points, spread, color=color, is_filled=True))
        below = above
    begun: dict[str, float] = {}
    for one in instants:
        begun.setdefault(one.phase, one.at_fraction)
    words = [f"{phase} from {format_percent(at)}" for phase, at in begun.items()]
    place = f" of {timeline.module}" if timeline.module else ""
    plot = LinePlot(
        f"One step: {format_bytes(peak.total)} at its peak, in {peak.phase}{place}",
        curves,
        x_name="the step's operators",
        x_unit="fraction",
        y_unit="bytes",
        note=f"{', '.join(words)} of the step's operators.",
        y_range=(0.0, float(max(1, peak.total))),
        stretches=[Shade("the peak", "#e0393e", peak.at_fraction, peak.at_fraction)],
    )
    return [plot]
