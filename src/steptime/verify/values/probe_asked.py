"""A probe of a model as a person asks for it: what is changed, and what must follow.

In: `KIND:key=value,...` of a command line, or a table of a suite file. Out: a `ProbeAsked`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import msgspec

from steptime.errors import UsageError

PERTURBATION, FRESH = "perturbation", "fresh"
INVARIANCE, DIRECTION, COMPLIANCE = "invariance", "direction", "compliance"
_KEYS: Mapping[str, tuple[str, str]] = {
    PERTURBATION: ("change", "column doses value margin"),
    FRESH: ("trained", "column size tolerance allowed"),
    INVARIANCE: ("change", "column size value tolerance allowed"),
    DIRECTION: ("change expect", "column size value by allowed"),
    COMPLIANCE: ("check", "allowed"),
}
"""The keys that a kind needs, and those that it may have."""

_LETTERS = {"INV": INVARIANCE, "DIR": DIRECTION, "MFT": COMPLIANCE}
"""CheckList's names (Ribeiro et al., ACL 2020)."""

_ALLOWED = 0.01
"""Of the rows; a larger default would pass a model that fails on many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAsked:
    """One probe.

    Attributes:
        kind: `perturbation`, `fresh`, `invariance`, `direction` or `compliance`.
        name: how it is called; without it, its kind, change and column.
        change: what is done to the inputs: the name of a change, or `FILE.py:FUNCTION`.
        column: the column that is changed; of an array, the number of the feature.
        size: how much, in the unit of the change.
        value: what `set` writes.
        doses: 3 to 5 sizes of a perturbation, in ascending order.
        expect: `up` or `down`: where the prediction must go.
        by: how far it must go at least.
        tolerance: how far a prediction may move that must stay; None for none of a label, and 0.1
            of a probability.
        allowed: the fraction of rows that may violate it.
        margin: how much worse than the reference's the retained metric may be.
        trained: the augmentations of the training.
        check: of `compliance`: `FILE.py:FUNCTION` of inputs and predictions.
    """

    kind: str
    name: str = ""
    change: str | None = None
    column: str | None = None
    size: float | None = None
    value: str | None = None
    doses: tuple[float, ...] = ()
    expect: str | None = None
    by: float = 0.0
    tolerance: float | None = None
    allowed: float = _ALLOWED
    margin: float | None = None
    trained: tuple[str, ...] = ()
    check: str | None = None


def parse_probe(text: str) -> ProbeAsked:
    """Return a probe as a command line has it: `invariance:column=z,change=permute`.

    Lists are written with a slash: `doses=0.1/0.3/1`.

    Raises:
        UsageError: it is no probe.
    """
    kind, _, rest = text.partition(":")
    given: dict[str, object] = {"kind": kind}
    for part in filter(None, rest.split(",")):
        key, sign, value = part.partition("=")
        if not sign:
            raise UsageError(f"--probe: `{part}` is not KEY=VALUE, such as column=age.")
        given[key.strip()] = value
    return probe_asked(given)


def probe_asked(given: Mapping[str, object]) -> ProbeAsked:
    """Return a probe as a table of a suite file has it.

    Raises:
        UsageError: a key is unknown or missing, or a value is none of its kind.
    """
    whole = dict(given)
    for name in ("doses", "trained"):
        value = whole.get(name)
        if isinstance(value, str):
            whole[name] = [part for part in value.split("/") if part]
    whole |= {name: str(whole[name]) for name in ("column", "value") if name in whole}
    kind = str(whole.get("kind", ""))
    whole["kind"] = _LETTERS.get(kind, kind)
    try:
        asked = msgspec.convert(whole, ProbeAsked, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"the probe `{given.get('kind')}` cannot be read: {error}") from error
    _check(asked, whole)
    parts = (asked.kind, asked.change or asked.check, asked.column)
    return asked if asked.name else replace(asked, name=" ".join(filter(None, parts)))


def _check(asked: ProbeAsked, given: Collection[str]) -> None:
    """Refuse a probe that says too little, something without effect, or what is no size."""
    if asked.kind not in _KEYS:
        raise UsageError(
            f"there is no probe `{asked.kind}`.", hint=f"Its kind is one of {', '.join(_KEYS)}."
        )
    needed, useful = (keys.split() for keys in _KEYS[asked.kind])
    for key in needed:
        if key not in given:
            raise UsageError(f"a probe of kind {asked.kind} needs the key `{key}`.")
    for key in given:
        if key not in ("kind", "name", *needed, *useful):
            raise UsageError(
                f"a probe of kind {asked.kind} has no key `{key}`.",
                hint=f"Its keys are {', '.join(['name', *needed, *useful])}.",
            )
    if asked.expect not in (None, "up", "down"):
        raise UsageError(f"`expect` of a probe is up or down, not `{asked.expect}`.")
    if not 0 <= asked.allowed < 1:
        raise UsageError(f"`allowed` of a probe is a fraction below 1, not {asked.allowed:g}.")
    if not all(0 <= one < math.inf for one in (asked.by, asked.tolerance or 0, asked.margin or 0)):
        raise UsageError("`by`, `tolerance` and `margin` of a probe are sizes, not below 0.")
    if not math.isfinite(asked.size or 0):
        raise UsageError(f"`size` of a probe is a number, not {asked.size}.")
    doses = asked.doses
    is_right = list(doses) == sorted(set(doses)) and all(0 < dose < math.inf for dose in doses)
    if doses and not (3 <= len(doses) <= 5 and is_right):
        raise UsageError("`doses` of a probe are 3 to 5 numbers above 0 in ascending order.")
