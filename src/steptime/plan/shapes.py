"""Proposes the nearest widths of a model that suit its device better.

In: the products of a step, and the rule of a device. Out: a `ShapeAdvice`: for each width the best
one above and below, with the predicted rate and time of the operators that change, and its price
in parameters. Nothing is run here. `widths.py` says what changes together, `device_rules.py` what a
size costs.

Source of the rules: stas00/ml-engineering, training/performance, "Vector and matrix size
divisibility"; Anthony et al. 2024 (arXiv:2401.14489).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import lcm, prod
from typing import Any

from steptime.plan.device_rules import (
    ALIGNED_BYTES,
    DTYPE_BYTES,
    DeviceRule,
    cost_of,
    with_call,
    work_of,
)
from steptime.plan.values.shape_values import (
    DeviceSeen,
    KeptWidth,
    Product,
    ProductPlace,
    Proposal,
    SeenProducts,
    ShapeAdvice,
)
from steptime.plan.widths import Axis, Width, find_widths

MIN_GAIN = 1.02
"""Less is within what the prediction can be wrong by."""

NEAR_GAIN = 0.02
"""A width that gains this much less than the best one is as good, if it is nearer."""

FAR_FRACTION = 0.15
"""A width that differs by more is another model; small ones may move to the next unit."""

FINE_FRACTION = 0.02
"""So near, a GPU's widths are multiples of 128 bytes: larger powers of two are still better."""
FINE_BYTES = 128

WAVE_UNIT = 64
"""Widths tried for a fuller last wave: half a tile's shorter side."""

MAX_PROPOSALS = 12
MAX_NAMES = 4

Sizes = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One operator before and after a proposal."""

    product: Product
    sizes: Sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What all operators that change cost and do, before and after."""

    cost: float
    new_cost: float
    work: float
    new_work: float

    @property
    def time_ratio(self) -> float:
        """The predicted time after over before."""
        return self.new_cost / self.cost

    @property
    def gain(self) -> float:
        """The predicted rate of work after over before."""
        return self.new_work / self.work / self.time_ratio


def advise_shapes(seen: SeenProducts, device: DeviceSeen, rule: DeviceRule | None) -> ShapeAdvice:
    """Return the widths that would suit a device better, the most useful first.

    Args:
        seen: the products of a step.
        device: the device that they ran on, or will.
        rule: how that device computes; None if nothing is known of it.
    """
    widths = find_widths(seen)
    if rule is None:
        kept = [KeptWidth(role=w.role, size=w.size, reason="unknown_device") for w in widths]
        return ShapeAdvice(device=device, rule=None, seen=seen, kept=tuple(kept))
    whole = sum(_cost(one, one.sizes, rule) * one.num for one in seen.products)
    found: list[Proposal] = []
    kept = []
    for width in widths:
        if not changes_of(width.new_sizes(width.size), seen):
            continue  # rows that are looked up and met by no product
        proposals = list(_proposals(width, seen, rule, whole))
        found += proposals
        if not proposals:
            kept.append(KeptWidth(role=width.role, size=width.size, reason=_why(width, seen, rule)))
    found += _head_proposals(seen, rule, whole)
    found.sort(key=lambda one: -one.share * (1 - 1 / one.predicted_gain))
    return ShapeAdvice(
        device=device,
        rule=rule.name,
        seen=seen,
        proposals=tuple(found[:MAX_PROPOSALS]),
        kept=tuple(kept),
    )


def _why(width: Width, seen: SeenProducts, rule: DeviceRule) -> str:
    if width.role == "data":
        return "given"
    units = {rule.unit(one.product.dtype) for one in changes_of(width.new_sizes(0), seen)}
    return "aligned" if all(width.size % unit == 0 for unit in units) else "no_gain"


# -- candidates


def _proposals(
    width: Width, seen: SeenProducts, rule: DeviceRule, whole: float
) -> Iterator[Proposal]:
    """Yield the best width above and the best one below, if they gain enough."""
    dtypes = {one.product.dtype for one in changes_of(width.new_sizes(width.size), seen)}
    if width.role == "data" or not dtypes & DTYPE_BYTES.keys():
        return
    bytes_ = min(DTYPE_BYTES.get(one, 4) for one in dtypes)
    candidates = candidates_for(width, rule, bytes_=bytes_)
    for is_above in (True, False):
        tried = []
        for new, unit, reason in candidates:
            if (new > width.size) is not is_above:
                continue
            changed = changes_of(width.new_sizes(new), seen)
            forecast = forecast_of(changed, rule)
            if forecast is not None and _is_worth(width, forecast, is_above=is_above):
                tried.append((forecast, new, unit, reason, changed))
        # The nearest of those that are about as good.
        best = max((round(one[0].gain, 2) for one in tried), default=0.0)
        near = [one for one in tried if one[0].gain >= best - NEAR_GAIN]
        if near:
            fine = FINE_BYTES // bytes_ if rule.is_gpu else 1
            forecast, new, unit, reason, changed = min(
                near, key=lambda one: (one[1] % fine != 0, abs(one[1] - width.size))
            )
            yield _proposal(width, new, forecast, changed, seen, whole, unit=unit, reason=reason)


def _is_worth(width: Width, forecast: Forecast, *, is_above: bool) -> bool:
    """Return whether a size gains enough.

    Tokens and classes cannot be left out, and those that are added are no use: only time counts.
    """
    if width.role in ("vocabulary", "outputs"):
        return is_above and forecast.time_ratio <= 1 / MIN_GAIN
    return forecast.gain >= MIN_GAIN


def candidates_for(width: Width, rule: DeviceRule, *, bytes_: int) -> list[tuple[int, int, str]]:
    """Return widths to try, each with the unit it is a multiple of and what it is tried for."""
    found: dict[int, tuple[int, str]] = {}
    size = width.size
    far = max(FAR_FRACTION * size, 0)
    base = max(1, ALIGNED_BYTES // bytes_) if rule.is_gpu else 16
    units = [FINE_BYTES // bytes_, base] if rule.is_gpu else [base, 2 * base, 4 * base]
    for unit in units:
        step = lcm(unit, width.multiple_of)
        is_fine = rule.is_gpu and unit != base
        reach = FINE_FRACTION * size if is_fine else max(far, unit - 1 if unit == base else 0)
        for new in (-(-size // step) * step, size // step * step):
            if new > 0 and new != size and abs(new - size) <= reach:
                found.setdefault(new, (unit, "alignment"))
    if rule.is_gpu and rule.multiprocessors is not None:
        step = lcm(WAVE_UNIT, width.multiple_of)
        first = -(-round(size * (1 - FAR_FRACTION)) // step) * step
        for new in range(max(step, first), round(size * (1 + FAR_FRACTION)) + 1, step):
            if new != size:
                found.setdefault(new, (WAVE_UNIT, "waves"))
    return [(new, unit, reason) for new, (unit, reason) in sorted(found.items())]


# -- what changes


def changes_of_proposal(proposal: Proposal, seen: SeenProducts) -> list[Change]:
    """Return the operators that a proposal changes."""
    if proposal.role == "heads":
        return _changed_heads(
            seen,
            heads=proposal.old,
            size=int(proposal.facts["head_size"]),
            new=proposal.new,
            new_size=int(proposal.facts["new_head_size"]),
        )
    width = next(
        one for one in find_widths(seen) if (one.size, one.role) == (proposal.old, proposal.role)
    )
    return changes_of(width.new_sizes(proposal.new), seen)


def changes_of(new_sizes: Mapping[Axis, int], seen: SeenProducts) -> list[Change]:
    """Return the operators that change where axes of weights have new sizes."""
    found = []
    for one in seen.products:
        sizes = _changed_sizes(one, new_sizes, seen)
        if sizes is not None:
            found.append(Change(product=one, sizes=sizes))
    return found


def _changed_sizes(
    one: Product, new_sizes: Mapping[Axis, int], seen: SeenProducts
) -> dict[str, Any] | None:
    """Return an operator's new sizes, or None if nothing of it changes."""
    new: dict[str, Any] = {}
    name = one.weight or ""
    axes = one.sizes.get("axes")
    if one.kind == "matmul" and isinstance(axes, tuple):
        for key, axis in zip(("m", "n", "inner"), axes, strict=True):
            if axis is not None and (name, int(axis)) in new_sizes:
                new[key] = new_sizes[name, int(axis)]
    elif one.kind == "convolution":
        made, taken = (1, 0) if one.sizes["transposed"] else (0, 1)
        for key, axis in (("channels_out", made), ("channels_in", taken)):
            if (name, axis) in new_sizes:
                new[key] = new_sizes[name, axis]
        if new and one.sizes["groups"] == one.sizes["channels_in"] != 1:  # each on its own
            size = new.get("channels_out", new.get("channels_in"))
            new |= {"channels_in": size, "channels_out": size, "groups": size}
    elif one.kind == "recurrent":
        new |= _recurrent_sizes(one, new_sizes)
    elif one.kind == "attention":
        new |= _attention_sizes(one, new_sizes, seen)
    return dict(one.sizes) | new if new else None


def _recurrent_sizes(one: Product, new_sizes: Mapping[Axis, int]) -> dict[str, int]:
    name = one.weight or ""
    state = name.replace("weight_ih", "weight_hh")
    found = {
        "gates": new_sizes.get((name, 0)),
        "channels_in": new_sizes.get((name, 1)),
        "hidden": new_sizes.get((state, 1)),
    }
    return {key: size for key, size in found.items() if size is not None}


def _attention_sizes(
    one: Product, new_sizes: Mapping[Axis, int], seen: SeenProducts
) -> dict[str, int]:
    """Return the new head size, where the width of all heads changes."""
    heads, size = one.sizes["heads"], one.sizes["head_size"]
    assert isinstance(heads, int)
    assert isinstance(size, int)
    shapes = {weight.name: weight.shape for weight in seen.weights}
    for (name, axis), new in new_sizes.items():
        if shapes[name][axis] == heads * size and not new % heads:
            return {"head_size": new // heads, "value_size": new // heads}
    return {}


def _cost(one: Product, sizes: Sizes, rule: DeviceRule) -> float:
    return with_call(cost_of(one.kind, sizes, one.dtype, rule), rule)


def forecast_of(changed: Sequence[Change], rule: DeviceRule) -> Forecast | None:
    """Return what these operators cost and do before and after; None where nothing is known."""
    known = [
        one for one in changed if cost_of(one.product.kind, one.sizes, one.product.dtype, rule)
    ]
    if not known:
        return None
    return Forecast(
        cost=sum(_cost(c.product, c.product.sizes, rule) * c.product.num for c in known),
        new_cost=sum(_cost(c.product, c.sizes, rule) * c.product.num for c in known),
        work=sum(work_of(c.product.kind, c.product.sizes) * c.product.num for c in known),
        new_work=sum(work_of(c.product.kind, c.sizes) * c.product.num for c in known),
    )


def _proposal(
    width: Width,
    new: int,
    forecast: Forecast,
    changed: Sequence[Change],
    seen: SeenProducts,
    whole: float,
    *,
    unit: int,
    reason: str,
) -> Proposal:
    facts: dict[str, float] = {}
    if width.hidden is not None:
        facts = {"coefficient": width.size / width.hidden, "new_coefficient": new / width.hidden}
    new_sizes = width.new_sizes(new)
    return Proposal(
        role=width.role,
        old=width.size,
        new=new,
        reason=reason,
        unit=unit,
        predicted_gain=forecast.gain,
        predicted_time_ratio=forecast.time_ratio,
        share=forecast.cost / whole if whole else 0.0,
        more_parameters=_more_parameters(new_sizes, seen),
        num_products=sum(one.product.num for one in changed),
        weights=tuple(sorted({name for name, _ in new_sizes})[:MAX_NAMES]),
        places=places_of(one.product for one in changed),
        facts=facts,
    )


def places_of(products: Iterable[Product]) -> tuple[ProductPlace, ...]:
    """Return the first files and lines of these products."""
    found = dict.fromkeys(one.place for one in products if one.place is not None)
    return tuple(sorted(found)[:MAX_NAMES])


def _more_parameters(new_sizes: Mapping[Axis, int], seen: SeenProducts) -> int:
    """Return the elements that all weights have more of."""
    more = 0
    for weight in seen.weights:
        shape = [new_sizes.get((weight.name, at), size) for at, size in enumerate(weight.shape)]
        more += prod(shape) - prod(weight.shape)
    return more


# -- heads


def _head_proposals(seen: SeenProducts, rule: DeviceRule, whole: float) -> Iterator[Proposal]:
    """Yield another number of heads of the same width where their size suits the device better."""
    done: set[tuple[int, int]] = set()
    for one in seen.products:
        if one.kind != "attention":
            continue
        heads, size, kv = (int(one.sizes[name]) for name in ("heads", "head_size", "kv_heads"))  # type: ignore[arg-type]
        if (heads, size) in done or one.sizes["value_size"] != size:
            continue
        done.add((heads, size))
        best = _best_heads(seen, rule, heads=heads, size=size, kv=kv)
        if best is not None:
            yield _heads_proposal(best, seen, whole, old=(heads, size))


def _best_heads(
    seen: SeenProducts, rule: DeviceRule, *, heads: int, size: int, kv: int
) -> tuple[int, int, Forecast, list[Change]] | None:
    """Return number and size of heads with the largest gain, nearest first."""
    width = heads * size
    tried = []
    for new in (n for n in range(1, 2 * heads + 1) if width % n == 0 and n != heads):
        new_kv, rest = divmod(new * kv, heads)
        if rest or not new_kv or not size / 2 <= width // new <= size * 2:
            continue
        changed = _changed_heads(seen, heads=heads, size=size, new=new, new_size=width // new)
        forecast = forecast_of(changed, rule)
        if forecast is not None and forecast.gain >= MIN_GAIN and (width // new) % 8 == 0:
            tried.append((new, width // new, forecast, changed))
    return max(tried, key=lambda one: (round(one[2].gain, 2), -abs(one[0] - heads)), default=None)


def _changed_heads(
    seen: SeenProducts, *, heads: int, size: int, new: int, new_size: int
) -> list[Change]:
    """Return the attention of so many heads with another number of them."""
    found = []
    for one in seen.products:
        sizes = one.sizes
        if one.kind == "attention" and (sizes["heads"], sizes["head_size"]) == (heads, size):
            kv = sizes["kv_heads"]
            assert isinstance(kv, int)
            changed = {"heads": new, "kv_heads": new * kv // heads}
            changed |= {"head_size": new_size, "value_size": new_size}
            found.append(Change(product=one, sizes=dict(sizes) | changed))
    return found


def _heads_proposal(
    best: tuple[int, int, Forecast, list[Change]],
    seen: SeenProducts,
    whole: float,
    *,
    old: tuple[int, int],
) -> Proposal:
    new, size, forecast, changed = best
    return Proposal(
        role="heads",
        old=old[0],
        new=new,
        reason="head_size",
        unit=8,
        predicted_gain=forecast.gain,
        predicted_time_ratio=forecast.time_ratio,
        share=forecast.cost / whole if whole else 0.0,
        more_parameters=0,
        num_products=sum(one.product.num for one in changed),
        places=places_of(one.product for one in changed),
        facts={"head_size": float(old[1]), "new_head_size": float(size)},
    )
