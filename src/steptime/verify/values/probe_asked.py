"""A probe of a model as a person asks for it: what is changed, and what must follow.

In: `KIND:key=value,...` of a command line, or a table of a suite file. Out: a `ProbeAsked`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

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

_MOST = 1e300
_Size = Annotated[float, msgspec.Meta(ge=0, le=_MOST)]


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
    size: Annotated[float, msgspec.Meta(ge=-_MOST, le=_MOST)] | None = None
    value: str | None = None
    doses: Annotated[tuple[_Size, ...], msgspec.Meta(min_length=3, max_length=5)] = ()
    expect: Literal["up", "down"] | None = None
    by: _Size = 0.0
    tolerance: _Size | None = None
    allowed: Annotated[float, msgspec.Meta(ge=0, lt=1)] = _ALLOWED
    margin: _Size | None = None
    trained: tuple[str, ...] = ()
    check: str | None = None


def probe_asked(given: str | Mapping[str, object]) -> ProbeAsked:
    """Return a probe as a table of a suite file has it, or as a command line has it.

    That is `invariance:column=z,change=permute`; lists are written with a slash:
    `doses=0.1/0.3/1`.

    Raises:
        UsageError: a key is unknown or missing, or a value is none of its kind.
    """
    if isinstance(given, str):
        kind, _, rest = given.partition(":")
        pairs = [part.partition("=") for part in filter(None, rest.split(","))]
        for key, sign, _ in pairs:
            if not sign:
                raise UsageError(f"--probe: `{key}` is not KEY=VALUE, such as column=age.")
        given = {"kind": kind, **{key.strip(): value for key, _, value in pairs}}
    if not isinstance(given, Mapping):
        raise UsageError(f"a probe is {given!r}; write it as KIND:KEY=VALUE,... or as a table.")
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
        raise UsageError(
            f"the probe `{kind}` cannot be read: {error}",
            hint="`expect` is up or down, `doses` are 3 to 5 sizes, `allowed` is a fraction.",
        ) from error
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
    doses = list(asked.doses)
    if doses != sorted(set(doses)) or 0 in doses:
        raise UsageError("`doses` of a probe are 3 to 5 numbers above 0 in ascending order.")
