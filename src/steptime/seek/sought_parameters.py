"""Reads what is searched from the command line, and puts values into the command.

In: texts such as `lr=1e-4..1e-2:log`. Out: `SoughtParameter`s, and commands without placeholders.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from steptime.errors import UsageError
from steptime.seek.values.seek_values import SoughtParameter

SEED = "seed"
_PLACE = re.compile(r"\{\{|\}\}|\{([A-Za-z_]\w*)\}")
_NAME = re.compile(r"[A-Za-z_]\w*")
_WHOLE = re.compile(r"[+-]?\d+")
_EXAMPLE = "Write: --param lr=1e-4..1e-2:log, --param layers=2..8, or --param bs=16,32,64"


def parse_parameters(texts: Sequence[str]) -> tuple[SoughtParameter, ...]:
    """Return the parameters.

    Raises:
        UsageError: a text is none, a range is empty or no logarithm can be taken of its ends, or a
            name stands twice.
    """
    if not texts:
        raise UsageError("there is nothing to search: --param is missing.", hint=_EXAMPLE)
    found = tuple(parse_parameter(text) for text in texts)
    names = sorted(one.name for one in found)
    for one, other in pairwise(names):
        if one == other:
            raise UsageError(f"--param {one} was given twice.", hint="Name all its values in one.")
    return found


def parse_parameter(text: str) -> SoughtParameter:
    """Return one parameter.

    Raises:
        UsageError: as for `parse_parameters`.
    """
    name, _, rest = text.partition("=")
    if not _NAME.fullmatch(name) or not rest:
        raise UsageError(f"--param `{text}` is no name with values.", hint=_EXAMPLE)
    if name == SEED:
        raise UsageError(
            "--param seed: a seed is no parameter, as its best value is luck.",
            hint="Write {seed} into the command; the search gives each run its own.",
        )
    if ".." not in rest:
        choices = tuple(part.strip() for part in rest.split(","))
        if len(choices) < 2 or not all(choices) or len(set(choices)) < len(choices):
            raise UsageError(f"--param {name} needs two or more different values.", hint=_EXAMPLE)
        return SoughtParameter(name=name, choices=choices)
    return _range(name, rest)


def _range(name: str, rest: str) -> SoughtParameter:
    span, _, scale = rest.partition(":")
    ends = span.split("..")
    try:
        low, high = (float(end) for end in ends)
    except ValueError:
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high)) or scale not in ("", "log"):
        raise UsageError(f"--param {name}: `{rest}` is no range.", hint=_EXAMPLE)
    if low >= high:
        raise UsageError(
            f"--param {name}: the range from {ends[0]} to {ends[1]} is empty.",
            hint="The first end must be the smaller one.",
        )
    if scale == "log" and low <= 0:
        raise UsageError(
            f"--param {name}: a logarithmic range cannot begin at {ends[0]}.",
            hint="Begin above 0, or leave out `:log`.",
        )
    return SoughtParameter(
        name=name,
        low=low,
        high=high,
        is_log=scale == "log",
        is_whole=all(_WHOLE.fullmatch(end) for end in ends),
    )


def parse_default(text: str, parameters: Sequence[SoughtParameter]) -> dict[str, str]:
    """Return the values in `lr=1e-3,bs=32`.

    Raises:
        UsageError: a parameter is missing or foreign, or a value lies outside what is searched.
    """
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    found = {name.strip(): value.strip() for name, _, value in pairs}
    names = {one.name for one in parameters}
    if found.keys() != names:
        wrong = sorted(found.keys() ^ names)
        raise UsageError(
            f"--default must give each parameter a value; it differs in {', '.join(wrong)}.",
            hint="Write: --default " + ",".join(f"{name}=..." for name in sorted(names)),
        )
    for one in parameters:
        if not _is_inside(one, found[one.name]):
            raise UsageError(
                f"--default {one.name}={found[one.name]} lies outside of what is searched.",
                hint="Search a range, or values, that the default belongs to.",
            )
    return found


def _is_inside(one: SoughtParameter, text: str) -> bool:
    if one.choices:
        return text in one.choices
    if one.is_whole and not _WHOLE.fullmatch(text):
        return False
    try:
        return (one.low or 0.0) <= float(text) <= (one.high or 0.0)
    except ValueError:
        return False


def check_command(
    command: Sequence[str], parameters: Sequence[SoughtParameter], *, seed_flag: str | None
) -> bool:
    """Return whether the command takes a seed; refuse one whose placeholders do not fit.

    Raises:
        UsageError: a parameter has no placeholder, or a placeholder no parameter.
    """
    used = {found[1] for word in command for found in _PLACE.finditer(word) if found[1]}
    names = {one.name for one in parameters}
    missing = sorted(names - used)
    if missing:
        raise UsageError(
            f"the command has no place for {', '.join(missing)}.",
            hint=f"Write {{{missing[0]}}} where its value belongs: --{missing[0]} {{{missing[0]}}}",
        )
    unknown = sorted(used - names - {SEED})
    if unknown:
        name = unknown[0]
        raise UsageError(
            f"the command has the placeholder {{{name}}}, which is not searched.",
            hint=f"Add --param {name}=..., or write {{{{{name}}}}} for the text itself.",
        )
    return SEED in used or seed_flag is not None


def filled(
    command: Sequence[str], values: Mapping[str, str], *, seed: int, seed_flag: str | None
) -> tuple[str, ...]:
    """Return the command of one run: each placeholder replaced, `{{` and `}}` as they are meant."""
    known = {**values, SEED: str(seed)}

    def replaced(found: re.Match[str]) -> str:
        name: str | None = found[1]
        return found[0][0] if name is None else known.get(name, found[0])

    words = tuple(_PLACE.sub(replaced, word) for word in command)
    return words if seed_flag is None else (*words, *_flag(seed_flag, seed))


def _flag(seed_flag: str, seed: int) -> tuple[str, ...]:
    return (f"{seed_flag}{seed}",) if seed_flag.endswith("=") else (seed_flag, str(seed))
