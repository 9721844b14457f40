"""Shows widths of a model that would suit its device better, with gain and price.

In: a `ShapeAdvice`. Out: lines of labeled blocks and a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from rich.text import Text

from steptime.core.printable import printable
from steptime.core.units import format_count, format_percent
from steptime.plan.values.shape_values import DeviceSeen, KeptWidth, Proposal, ShapeAdvice
from steptime.report.text.page import Page, columns, joined

ROLES = {
    "hidden": "hidden width",
    "inner": "inner width of the MLP",
    "gated": "inner width of the gated MLP",
    "vocabulary": "vocabulary",
    "outputs": "outputs",
    "channels": "channels",
    "recurrent": "recurrent width",
    "heads": "heads",
    "data": "width of the data",
}
"""What a role is called."""

_LABELS = {"gated": "mlp", "inner": "mlp", "vocabulary": "vocab"}

_REASONS = {
    "alignment": "multiple of {unit}",
    "waves": "fuller last wave",
    "head_size": "heads of {head:.0f} instead of {old_head:.0f}",
}

_KEPT = {
    "aligned": "suits the device already",
    "no_gain": "nothing near is better by 2% or more",
    "given": "comes with the data",
    "unknown_device": "nothing is known of this device",
}

_HEAD = ("width", "now", "better", "why", "rate", "time", "measured", "parameters", "of products")

_MISSING = {
    "not_among_the_best": "not timed",
    "out_of_time": "no time",
    "not_supported": "refused",
}


def shapes_lines(advice: ShapeAdvice, *, page: Page) -> list[Text]:
    """Return what was seen, the proposals as a table, and the widths that stay."""
    seen = advice.seen
    num = sum(one.num for one in seen.products)
    steps = "a step" if seen.updates == 1 else f"{seen.updates} steps"
    told = joined([f"{format_count(num)} products of {steps}", _device(advice.device)])
    lines = [*page.block("seen", told), Text()]
    if advice.rule is None:
        text = f"no widths are proposed: nothing is known of the device `{advice.device.kind}`"
        return [*lines, *page.block("device", printable(text)), *_kept_lines(advice, page)]
    if not advice.proposals:
        lines += page.block("widths", "every width suits the device, as far as is known here")
    else:
        lines += columns([_HEAD, *(_row(one) for one in advice.proposals)], left=4)
        lines.append(Text())
        for one in advice.proposals:
            lines += page.block(_LABELS.get(one.role, one.role), _where(one))
        lines += [Text(), *page.block("note", _NOTE)]
        for note in dict.fromkeys(_role_notes(advice.proposals)):
            lines += page.block("note", note)
    return [*lines, *_kept_lines(advice, page)]


_NOTE = (
    "rate and time are of the operators that change; axes of one size are taken for one width. "
    "Another width is another model: train it again to compare."
)


def _device(device: DeviceSeen) -> str:
    words = [printable(device.name or device.kind)]
    if device.capability is not None:
        words.append(printable(device.capability))
    if device.num_multiprocessors is not None:
        words.append(f"{device.num_multiprocessors} multiprocessors")
    return " ".join(words)


def _row(one: Proposal) -> tuple[str, ...]:
    why = _REASONS[one.reason].format(
        unit=one.unit,
        head=one.facts.get("new_head_size", 0.0),
        old_head=one.facts.get("head_size", 0.0),
    )
    return (
        ROLES[one.role],
        str(one.old),
        str(one.new),
        why,
        f"{one.predicted_gain:.2f}x",
        f"{one.predicted_time_ratio:.2f}x",
        _measured(one),
        f"{one.more_parameters:+,}",
        format_percent(one.share),
    )


def _measured(one: Proposal) -> str:
    if one.measured is None:
        return "-"
    if one.measured.gain is None:
        return _MISSING.get(one.measured.missing or "", "none")
    return f"{one.measured.gain:.2f}x"


def _where(one: Proposal) -> str:
    parts = [f"{one.old} to {one.new}"]
    if "coefficient" in one.facts:
        now, new = one.facts["coefficient"], one.facts["new_coefficient"]
        parts.append(f"{now:.4g} to {new:.4g} times the hidden width")
    parts += [f"{printable(PurePath(at.file).name)}:{at.line}" for at in one.places]
    parts += [printable(name) for name in one.weights]
    if one.measured is not None and one.measured.time_ratio is not None:
        ratio = one.measured.time_ratio
        parts.append(
            f"time {ratio.estimate:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}], {ratio.n} rounds, "
            f"{one.measured.clock} time"
        )
    return joined(parts)


def _role_notes(proposals: tuple[Proposal, ...]) -> Iterator[str]:
    for one in proposals:
        if one.role == "vocabulary":
            yield (
                "Padding the vocabulary adds rows that no token uses: their logits must not win, "
                "so leave them out of the loss or let it learn that."
            )
        elif one.role == "outputs":
            yield "Outputs that are added belong to nothing: cut them off before the loss."
        elif one.role == "gated":
            yield (
                "The width of a gated MLP is free: 8/3 of the hidden width keeps the parameters of "
                "an MLP of 4 times, and need not be met."
            )


def _kept_lines(advice: ShapeAdvice, page: Page) -> list[Text]:
    lines: list[Text] = []
    for reason, words in _KEPT.items():
        sizes = [_kept(one) for one in advice.kept if one.reason == reason]
        if sizes:
            lines += page.block("stays", f"{joined(sizes)}: {words}")
    return lines


def _kept(one: KeptWidth) -> str:
    return f"{one.size} ({ROLES[one.role]})"
