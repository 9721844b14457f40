"""Prints what the processes of a run answered while they trained.

In: the document of an answer. Out: lines on a console, a block for each rank.
"""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.text import Text

from steptime.core.printable import printable
from steptime.core.units import format_bytes, format_flops, format_seconds
from steptime.diagnose.ailments.ranks.desynced import describe_desync
from steptime.measure.values.answer import CountedStep, HeldMemory, RankAnswer
from steptime.measure.values.model.anatomy import Allocator
from steptime.measure.values.model.layer_health import LayerHealth
from steptime.report.blocks.phrasing import joined
from steptime.report.blocks.run.stall_blocks import describe_ranks, format_ranks, stack_lines
from steptime.report.blocks.work.memory_blocks import list_parts
from steptime.report.blocks.work.profile_blocks import REASONS as PROFILE_REASONS
from steptime.report.blocks.work.profile_blocks import describe_trace, rank_profile_blocks
from steptime.report.blocks.work.work_blocks import REASONS as COUNT_REASONS
from steptime.report.blocks.work.work_blocks import describe_count
from steptime.report.document.listings import AttachDocument
from steptime.report.text.page import Page, page_of
from steptime.report.text.paint_text import paint
from steptime.report.words.answer_words import ASKED_REASONS, describe_missing
from steptime.report.words.health_words import (
    describe_bracket,
    describe_layers,
    describe_probe,
    describe_samples,
)

_STACKS = "stacks"

MAX_RANKS = 8
"""As many ranks are shown in full; the document of --json has all of them."""

_IN_TENSORS = ("weights", "buffers", "gradients", "optimizer", "activations", "logits")
"""The parts of an anatomy that an update shows by itself."""


def render_answer(document: AttachDocument, *, console: Console) -> None:
    """Print the answer of each rank, then where the ranks are that did not answer."""
    page = page_of(console)
    answered = [one for one in document.ranks if one.missing is None]
    for one in answered[:MAX_RANKS]:
        page.write(_rank_lines(one, page))
    if len(answered) > MAX_RANKS:
        text = f"more ranks in the document of --json: {len(answered) - MAX_RANKS}"
        page.write(page.block("", text, style="dim"))
    if document.layers is not None:
        page.write(_layer_lines(document.layers, page))
    page.write(_missing_lines(document, page))
    sentences = [] if document.desync is None else [describe_desync(document.desync)]
    if document.stacks:
        sentences += describe_ranks(document.stacks, document.culprits)
    page.write(Text(printable(sentence)) for sentence in sentences)
    if document.what == _STACKS:
        for rank in document.stacks:
            page.write([Text(), *(Text(printable(line)) for line in stack_lines(rank))])


def _rank_lines(one: RankAnswer, page: Page) -> list[Text]:
    place = Text(_of_training(one.training) + describe_place(one), style="bold")
    lines = page.block(f"rank {one.rank}", place)
    if one.memory is not None:
        lines += _memory_lines(one.memory, page)
    if one.count is not None:
        lines += _count_lines(one.count, page)
    if one.profile is not None:
        lines += paint(rank_profile_blocks(one.profile), page)
    return lines


def _missing_lines(document: AttachDocument, page: Page) -> list[Text]:
    """Say why ranks gave no answer; those with the same reason share a line."""
    groups: dict[tuple[int | None, str], list[RankAnswer]] = {}
    for one in document.ranks:
        if one.missing is not None:
            groups.setdefault((one.training, one.missing), []).append(one)
    lines: list[Text] = []
    for (training, word), ranks in groups.items():
        numbers = format_ranks([one.rank for one in ranks])
        name = f"rank {numbers}" if len(ranks) == 1 else f"ranks {numbers}"
        reason = describe_missing(word, _REASONS)
        text = f"{_of_training(training)}{name}: {reason}"
        lines += page.block("no answer", printable(text), style="yellow")
        files = [one.profile.file for one in ranks if one.profile and one.profile.file]
        for file in files[:1]:  # it was written, and is too large to be read here
            lines += page.block("trace", describe_trace(file))
    return lines


def _of_training(number: int | None) -> str:
    return "" if number is None else f"training {number}: "


def describe_place(one: RankAnswer) -> str:
    """Return which updates were examined: `update 812`, `updates 812 to 815`."""
    first = one.first_update or 0
    last = first + max(1, one.num_updates) - 1
    return f"update {first:,}" if last == first else f"updates {first:,} to {last:,}"


_REASONS: Mapping[str, str] = {**COUNT_REASONS, **PROFILE_REASONS, **ASKED_REASONS}


# -- layers


def _layer_lines(layers: LayerHealth, page: Page) -> list[Text]:
    lines: list[Text] = []
    if layers.bracket is not None:
        lines += page.block("layer", printable(describe_bracket(layers.bracket)))
        lines += page.block("samples", describe_samples(layers.bracket))
    moved = describe_layers(layers)
    if moved is not None:
        lines += page.block("layers", printable(moved))
    return lines + page.block("probed", describe_probe(layers, None))


# -- memory


def _memory_lines(held: HeldMemory, page: Page) -> list[Text]:
    sizes = {name: held.anatomy.bytes_of(name) for name in _IN_TENSORS}
    sizes = {name: size for name, size in sizes.items() if size} | {"others": held.others_bytes}
    when = "activations as the backward call began, all else at the end of the update"
    lines = page.block("memory", printable(f"{list_parts(sizes)} · {when}"))
    if held.others:
        groups = [f"{one.num:,} of {one.name} {format_bytes(one.bytes)}" for one in held.others]
        lines += page.block("others", joined(map(printable, groups)))
    if held.anatomy.by_kind:
        kept = [f"{one.name} {format_bytes(one.bytes)}" for one in held.anatomy.by_kind[:5]]
        lines += page.block("kept by", joined(map(printable, kept)))
    if held.resident_bytes is not None:
        lines += page.block("process", f"{format_bytes(held.resident_bytes)} resident")
    if held.anatomy.allocator is not None:
        lines += page.block("device", _describe_device(held.anatomy.allocator))
    return lines


def _describe_device(device: Allocator) -> str:
    parts = [
        f"{word} {format_bytes(size)}"
        for word, size in (
            ("given out", device.allocated),
            ("at most", device.peak_allocated),
            ("held by torch", device.reserved),
            ("free", device.free),
        )
        if size is not None
    ]
    return joined(parts)


# -- work


def _count_lines(counted: CountedStep, page: Page) -> list[Text]:
    lines: list[Text] = []
    for count in counted.updates:
        lines += page.block("" if lines else "work", printable(describe_count(count)))
    if counted.flops_per_s is not None and counted.step_time_s is not None:
        rate = f"{format_flops(counted.flops_per_s)}S at the usual step time of "
        lines += page.block("rate", rate + format_seconds(counted.step_time_s))
    return lines
