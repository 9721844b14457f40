"""Changes the values of one column, by a dose, in rows that it names.

In: values (num_rows,) of numbers or text, or an array of numbers (num_rows, ...). Out: the changed
values, and the rows (num_rows,) that the change claims to have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from steptime.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Values = NDArray[Any]
    Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dosed:
    """How much is changed: a dose or size, the value of `set`, and the numbers of chance."""

    dose: float
    value: str | None
    random: np.random.Generator


def is_text(values: Values) -> bool:
    """Return whether the values are text."""
    return values.dtype.kind in "US"


def noise(values: Values, how: Dosed) -> tuple[Values, Mask]:
    """Add normal noise of so many standard deviations of the values."""
    spread = np.nanstd(values.astype(float)) if values.ndim != 2 else np.nanstd(values, axis=0)
    changed = values + how.dose * spread * how.random.normal(size=values.shape)
    return like(changed, values), np.ones(len(values), dtype=bool)


def corrupt(values: Values, how: Dosed) -> tuple[Values, Mask]:
    """Replace a fraction: of numbers by others in their range, of letters by others."""
    if is_text(values):
        return _each(values, how, _other_letters), np.ones(len(values), dtype=bool)
    hit = how.random.random(values.shape) < how.dose
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    changed = np.where(hit, how.random.uniform(low, high, size=values.shape), values)
    claimed: Mask = np.any(hit.reshape(len(values), -1), axis=1)
    return like(changed, values), claimed


def missing(values: Values, how: Dosed) -> tuple[Values, Mask]:
    """Take a fraction of the values away: NaN for numbers, empty for text."""
    hit = how.random.random(len(values)) < how.dose
    gone = np.where(hit, "", values) if is_text(values) else np.where(hit, np.nan, values)
    return gone, hit


def permute(values: Values, how: Dosed) -> tuple[Values, Mask]:
    """Give a fraction of the rows the value of another row, which differs if one is left.

    Rows are sorted by value, equal ones by chance, and their values moved by at least as many
    places as the most frequent value has rows: so each row of it gets another value.
    """
    rows = np.flatnonzero(how.random.random(len(values)) < how.dose)
    claimed = np.zeros(len(values), dtype=bool)
    num = len(rows)
    if num < 2:
        return values, claimed
    chosen = values[rows]
    order = np.lexsort((how.random.random(num), np.unique(chosen, return_inverse=True)[1]))
    most = int(np.unique(chosen, return_counts=True)[1].max())
    least = min(max(most, num // 4), num // 2)
    step = int(how.random.integers(least, num - least + 1))
    moved = np.empty_like(chosen)
    moved[order] = np.roll(chosen[order], step)
    changed = values.copy()
    changed[rows] = moved
    # More than half of the rows have one value: some keep it, and are not claimed.
    claimed[rows] = moved != chosen if 2 * most > num else True
    return changed, claimed


def add(values: Values, how: Dosed) -> tuple[Values, Mask]:
    """Add the size."""
    return values + how.dose, np.ones(len(values), dtype=bool)


def scale(values: Values, how: Dosed) -> tuple[Values, Mask]:
    """Multiply by the size; 0 stays 0, and is not claimed."""
    return values * how.dose, values != 0


def put(values: Values, how: Dosed) -> tuple[Values, Mask]:
    """Write one value; rows that have it are not claimed."""
    if how.value is None:
        raise UsageError("a probe that changes by `set` needs the key `value`.")
    if is_text(values):
        return np.full(len(values), how.value), values != how.value
    try:
        number = float(how.value)
    except ValueError as error:
        raise UsageError(f"`{how.value}` is no number, and the column has numbers.") from error
    return np.full(len(values), number), values != number


def drop(values: Values, how: Dosed) -> tuple[Values, Mask]:
    """Drop a fraction of the words, at least one."""

    def shortened(text: str) -> str:
        words = text.split()
        kept = how.random.random(len(words)) >= how.dose
        if len(words) and kept.all():
            kept[how.random.integers(len(words))] = False
        return " ".join(word for word, is_kept in zip(words, kept, strict=True) if is_kept)

    return _each(values, how, lambda text, _: shortened(text)), np.ones(len(values), dtype=bool)


def swap_letters(values: Values, how: Dosed) -> tuple[Values, Mask]:
    """Swap two letters that stand beside each other and differ, as a typing error does."""

    def swapped(text: str, how: Dosed) -> str:
        places = [
            i for i in range(len(text) - 1) if text[i] != text[i + 1] and text[i : i + 2].isalpha()
        ]
        if not places:
            return text
        at = places[int(how.random.integers(len(places)))]
        return text[:at] + text[at + 1] + text[at] + text[at + 2 :]

    return _each(values, how, swapped), np.ones(len(values), dtype=bool)


def turn_case(values: Values, how: Dosed) -> tuple[Values, Mask]:
    """Write all letters large, or small where they all are large."""

    def turned(text: str, _: Dosed) -> str:
        return text.lower() if text.isupper() else text.upper()

    return _each(values, how, turned), np.ones(len(values), dtype=bool)


def _other_letters(text: str, how: Dosed) -> str:
    letters = np.array(list(text), dtype=object)
    hit = how.random.random(len(letters)) < how.dose
    if len(letters) and not hit.any():
        hit[how.random.integers(len(letters))] = True
    # 25 places on in the alphabet: another letter, whichever it was.
    letters[hit] = [
        chr((ord(c.lower()) - ord("a") + int(how.random.integers(1, 26))) % 26 + ord("a"))
        for c in letters[hit]
    ]
    return "".join(letters)


def _each(values: Values, how: Dosed, change: Callable[[str, Dosed], str]) -> Values:
    return np.array([change(str(text), how) for text in values.tolist()], dtype=str)


def like(changed: Values, values: Values) -> Values:
    """Return numbers as pixels where the values are: rounded, within what the type holds."""
    if values.dtype.kind not in "ui" or values.ndim < 3:
        return changed
    held = np.iinfo(values.dtype)
    return np.clip(np.rint(changed), held.min, held.max).astype(values.dtype)


Changer = Callable[["Values", Dosed], tuple["Values", "Mask"]]
OF_NUMBERS: Mapping[str, Changer] = {
    "noise": noise,
    "jitter": noise,
    "corrupt": corrupt,
    "missing": missing,
    "permute": permute,
    "add": add,
    "scale": scale,
    "set": put,
}
OF_TEXT: Mapping[str, Changer] = {
    "drop": drop,
    "typo": swap_letters,
    "case": turn_case,
    "corrupt": corrupt,
    "missing": missing,
    "permute": permute,
    "set": put,
}
