"""Makes the report of `plan shapes`: better widths, their gains, price and place.

In: a `ShapeAdvice`. Out: blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from steptime.core.printable import printable
from steptime.core.units import format_count, format_percent, format_seconds
from steptime.plan.values.shape_values import (
    DeviceSeen,
    Product,
    Proposal,
    SeenProducts,
    ShapeAdvice,
    Size,
)
from steptime.report.blocks.phrasing import joined, labeled, sections
from steptime.report.blocks.values import (
    Block,
    Headline,
    Sheet,
    TableBlock,
)

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

HEAD = ("width", "now", "better", "why", "rate", "time", "measured", "parameters", "of matmul")
"""The columns of `describe_proposal`; the first four are text."""

NOTE = (
    "rate and time are of the operators that change; axes of one size are taken for one width. "
    "Another width is another model: train it again to compare."
)

ALL_SUIT = "every width suits the device, as far as is known here"

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

_MISSING = {
    "not_among_the_best": "not timed",
    "out_of_time": "no time",
    "not_supported": "refused",
}


def describe_seen(seen: SeenProducts) -> str:
    """Return how many products there were."""
    num = sum(one.num for one in seen.products)
    steps = "a step" if seen.updates == 1 else f"{seen.updates} steps"
    return f"{format_count(num)} matmuls and convolutions of {steps}"


def describe_device(device: DeviceSeen) -> str:
    """Return what torch says of a device."""
    words = [printable(device.name or device.kind)]
    if device.capability is not None:
        words.append(printable(device.capability))
    if device.num_multiprocessors is not None:
        words.append(f"{device.num_multiprocessors} multiprocessors")
    return " ".join(words)


def describe_sizes(one: Product) -> str:
    """Return the sizes of a product: of a matmul rows, what is summed over, and columns."""
    sizes = one.sizes
    if one.kind == "matmul":
        whole = " x ".join(str(sizes[name]) for name in ("m", "inner", "n"))
        return whole if sizes["batch"] == 1 else f"{sizes['batch']} times {whole}"
    if one.kind == "convolution":
        kernel, channels = _row(sizes["kernel"]), (sizes["channels_in"], sizes["channels_out"])
        return (
            f"{channels[0]} to {channels[1]} channels, kernel {kernel}, "
            f"batch {sizes['batch']} of {_row(sizes['space'])}"
        )
    plain = {key: size for key, size in sizes.items() if not isinstance(size, bool)}
    return ", ".join(f"{key.replace('_', ' ')} {_row(size)}" for key, size in plain.items())


def _row(size: Size) -> str:
    return " x ".join(map(str, size)) if isinstance(size, (tuple, list)) else str(size)


def describe_unknown(device: DeviceSeen) -> str:
    """Return why nothing is proposed for a device."""
    return f"no widths are proposed: nothing is known of the device `{printable(device.kind)}`"


def describe_proposal(one: Proposal) -> tuple[str, ...]:
    """Return a row of the table whose heading is `HEAD`."""
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


def describe_where(one: Proposal) -> list[str]:
    """Return the sizes, the lines and weights that change, and what timing said."""
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
    return parts


def describe_notes(proposals: tuple[Proposal, ...]) -> list[str]:
    """Return what else to know of some widths; each sentence once."""
    return [NOTE, *dict.fromkeys(_role_notes(proposals))]


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


def describe_kept(advice: ShapeAdvice) -> list[tuple[list[str], str]]:
    """Return the widths that stay, for each reason."""
    found = []
    for reason, words in _KEPT.items():
        sizes = [f"{one.size} ({ROLES[one.role]})" for one in advice.kept if one.reason == reason]
        if sizes:
            found.append((sizes, words))
    return found


_LABELS = {"gated": "mlp", "inner": "mlp", "vocabulary": "vocab"}
_MOST_PRODUCTS = 20
_PRODUCTS = "The matmuls and convolutions of a step"


def shapes_report(advice: ShapeAdvice, *, command: Sequence[str]) -> Sheet:
    """Return the report of an advice on widths for the user's command."""
    proposals = advice.proposals if advice.rule is not None else ()
    rows = [describe_proposal(one) for one in proposals]
    where = [(_LABELS.get(p.role, p.role), joined(describe_where(p))) for p in proposals]
    notes = describe_notes(proposals) if proposals else []
    stay = [("stays", f"{joined(sizes)}: {why}") for sizes, why in describe_kept(advice)]
    seen = joined([describe_seen(advice.seen), describe_device(advice.device)])
    parts: tuple[tuple[str, list[Block]], ...] = (
        ("", [Headline("widths", _answer(advice)), *labeled(("seen", seen))]),
        ("The proposals", [TableBlock(HEAD, rows, left=4, name="Widths")] if rows else []),
        ("Where they are", labeled(*where)),
        ("What to know", labeled(*(("note", note) for note in notes), *stay)),
        (_PRODUCTS, _products(advice)),
    )
    told = sections(parts, pages=(_PRODUCTS,))
    return Sheet(kind="advice on widths", command=command, parts=told)


def _answer(advice: ShapeAdvice) -> str:
    if advice.rule is None:
        return describe_unknown(advice.device)
    num = len({(one.role, one.old) for one in advice.proposals})
    if not num:
        return ALL_SUIT
    if num == 1:
        return "one width of which another size suits the device better"
    return f"{num} widths of which another size suits the device better"


def _products(advice: ShapeAdvice) -> list[Block]:
    """List the products that took longest, and say how many more there are."""
    seen = advice.seen
    rows = [_product(one) for one in seen.products[:_MOST_PRODUCTS]]
    heading = ("product", "pass", "module", "sizes", "type", "times", "time")
    num = len(seen.products) - len(rows) + seen.num_left_out
    more = f"{format_count(num)} more, shorter ones." if num else None
    return [TableBlock(heading, rows, left=5, name=_PRODUCTS), *labeled(("", more))] if rows else []


def _product(one: Product) -> tuple[str, ...]:
    return (
        one.kind,
        one.which,
        one.module or one.module_kind or "–",
        describe_sizes(one),
        one.dtype,
        str(one.num),
        "–" if one.time_s is None else format_seconds(one.time_s),
    )
