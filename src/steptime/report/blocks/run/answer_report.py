"""Makes the report of what the processes of a run answered while they trained.

In: a `RunAnswer`, which is the document of `attach`, too. Out: a Sheet, blocks for each rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from steptime.core.printable import printable
from steptime.core.units import format_bytes, format_flops, format_seconds
from steptime.diagnose.ailments.ranks.desynced import describe_desync
from steptime.measure.values.answer import CountedStep, HeldMemory, RankAnswer
from steptime.measure.values.desync import Desync
from steptime.measure.values.model.anatomy import Allocator
from steptime.measure.values.model.layer_health import LayerHealth
from steptime.measure.values.stall import StalledRank
from steptime.report.blocks.phrasing import joined, listed
from steptime.report.blocks.run.counted_steps import more_blocks
from steptime.report.blocks.run.stall_blocks import describe_ranks, format_ranks, stack_lines
from steptime.report.blocks.values import Blank, Block, Code, Labeled, Section, Sheet
from steptime.report.blocks.work.layer_blocks import health_blocks
from steptime.report.blocks.work.memory_blocks import list_parts
from steptime.report.blocks.work.profile_blocks import REASONS as PROFILE_REASONS
from steptime.report.blocks.work.profile_blocks import describe_trace, rank_profile_blocks
from steptime.report.blocks.work.work_blocks import REASONS as COUNT_REASONS
from steptime.report.blocks.work.work_blocks import describe_count
from steptime.report.text.plain_text import Shown
from steptime.report.words.run.answer_words import ASKED_REASONS, describe_missing

if TYPE_CHECKING:
    from rich.console import Console

_STACKS = "stacks"

MAX_RANKS = 8
"""As many ranks are shown in full; the document of --json has all of them."""

_IN_TENSORS = ("weights", "buffers", "gradients", "optimizer", "activations", "logits")
"""The parts of an anatomy that an update shows by itself."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RunAnswer(Shown):
    """Where the processes of a run are, or what they answered while they trained.

    `print(answer)` shows it as the terminal does.

    Attributes:
        run_id: name of the run's folder; null for a process that belongs to no run.
        what: what was asked: `stacks`, `memory`, `count`, `profile` or `health`.
        asked_unix_s: when it was asked.
        ranks: what each rank answered, or why it did not; empty for `stacks`.
        stacks: where the ranks are: all of them for `stacks`, else those that did not answer in
            time, as far as they are on this machine.
        culprits: the ranks that the others wait for; empty where that is not known.
        layers: what the probe of the layers saw in the rank with most updates, and in earlier
            probes of the run; None unless `health` was asked.
        desync: how the ranks lost each other; None where nothing shows it.
        is_past: whether the run has ended, and the stacks are those of its last stall.
    """

    run_id: str | None
    what: str
    asked_unix_s: float
    ranks: tuple[RankAnswer, ...] = ()
    stacks: tuple[StalledRank, ...] = ()
    culprits: tuple[int, ...] = ()
    layers: LayerHealth | None = None
    desync: Desync | None = None
    is_past: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether every rank answered."""
        return all(one.missing is None for one in self.ranks)

    def render(self, console: Console) -> None:
        """Write the answer to a console of rich."""
        from steptime.report.text.paint_text import print_report

        print_report(answer_report(self), console=console)

    def __repr__(self) -> str:
        num = sum(one.missing is None for one in self.ranks) or len(self.stacks)
        return f"<RunAnswer {self.run_id}: {self.what}, {num} ranks>"


def answer_report(answer: RunAnswer) -> Sheet:
    """Return the answer of each rank, then where the ranks are that did not answer."""
    answered = [one for one in answer.ranks if one.missing is None]
    sentences = [] if answer.desync is None else [describe_desync(answer.desync)]
    stacks = list[Block]()
    if answer.stacks:
        sentences += describe_ranks(answer.stacks, answer.culprits)
    if answer.what == _STACKS:
        for rank in answer.stacks:
            stacks += [Blank(), Code("\n".join(stack_lines(rank)), is_whole=True)]
    blocks = [
        *(block for one in answered[:MAX_RANKS] for block in _rank_blocks(one)),
        *more_blocks("ranks", len(answered) - MAX_RANKS),
        *([] if answer.layers is None else health_blocks(answer.layers, None)),
        *_missing_blocks(answer),
        *listed("stacks", sentences),
        *stacks,
    ]
    return Sheet(kind="answer", parts=[Section("", blocks)])


def _rank_blocks(one: RankAnswer) -> list[Block]:
    place = Text(_of_training(one.training) + describe_place(one), style="bold")
    lines: list[Block] = [Labeled(f"rank {one.rank}", place)]
    if one.memory is not None:
        lines += _memory_blocks(one.memory)
    if one.count is not None:
        lines += _count_blocks(one.count)
    if one.profile is not None:
        lines += rank_profile_blocks(one.profile)
    return lines


def _missing_blocks(answer: RunAnswer) -> list[Block]:
    """Say why ranks gave no answer; those with the same reason share a line."""
    groups: dict[tuple[int | None, str], list[RankAnswer]] = {}
    for one in answer.ranks:
        if one.missing is not None:
            groups.setdefault((one.training, one.missing), []).append(one)
    lines: list[Block] = []
    for (training, word), ranks in groups.items():
        numbers = format_ranks([one.rank for one in ranks])
        name = f"rank {numbers}" if len(ranks) == 1 else f"ranks {numbers}"
        reason = describe_missing(word, _REASONS)
        text = f"{_of_training(training)}{name}: {reason}"
        lines += [Labeled("no answer", printable(text), style="yellow")]
        files = [one.profile.file for one in ranks if one.profile and one.profile.file]
        for file in files[:1]:  # it was written, and is too large to be read here
            lines += [Labeled("trace", describe_trace(file))]
    return lines


def _of_training(number: int | None) -> str:
    return "" if number is None else f"training {number}: "


def describe_place(one: RankAnswer) -> str:
    """Return which updates were examined: `update 812`, `updates 812 to 815`."""
    first = one.first_update or 0
    last = first + max(1, one.num_updates) - 1
    return f"update {first:,}" if last == first else f"updates {first:,} to {last:,}"


_REASONS: Mapping[str, str] = {**COUNT_REASONS, **PROFILE_REASONS, **ASKED_REASONS}


# -- memory


def _memory_blocks(held: HeldMemory) -> list[Block]:
    sizes = {name: held.anatomy.bytes_of(name) for name in _IN_TENSORS}
    sizes = {name: size for name, size in sizes.items() if size} | {"others": held.others_bytes}
    when = "activations as the backward call began, all else at the end of the update"
    lines: list[Block] = [Labeled("memory", printable(f"{list_parts(sizes)} · {when}"))]
    if held.others:
        groups = [f"{one.num:,} of {one.name} {format_bytes(one.bytes)}" for one in held.others]
        lines += [Labeled("others", joined(map(printable, groups)))]
    if held.anatomy.by_kind:
        kept = [f"{one.name} {format_bytes(one.bytes)}" for one in held.anatomy.by_kind[:5]]
        lines += [Labeled("kept by", joined(map(printable, kept)))]
    if held.resident_bytes is not None:
        lines += [Labeled("process", f"{format_bytes(held.resident_bytes)} resident")]
    if held.anatomy.allocator is not None:
        lines += [Labeled("device", _describe_device(held.anatomy.allocator))]
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


def _count_blocks(counted: CountedStep) -> list[Block]:
    lines: list[Block] = []
    for count in counted.updates:
        lines += [Labeled("" if lines else "work", printable(describe_count(count)))]
    if counted.flops_per_s is not None and counted.step_time_s is not None:
        rate = f"{format_flops(counted.flops_per_s)}S at the usual step time of "
        lines += [Labeled("rate", rate + format_seconds(counted.step_time_s))]
    return lines
