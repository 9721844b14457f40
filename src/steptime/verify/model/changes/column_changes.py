"""Changes the values of one column, by a dose.

In: values (num_rows,) of numbers or text, or pixels (num_rows, ...). Out: the same with changes: in
all rows, but those of `PARTIAL` in some rows alone.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Dosed:
    """How much is changed: a dose or size, the value of `set`, and the numbers of chance."""

    dose: float
    value: str | None
    random: np.random.Generator


Changer = Callable[["Values", Dosed], "Values"]


def is_text(values: Values) -> bool:
    """Return whether the values are text."""
    return values.dtype.kind == "U"


def noise(values: Values, how: Dosed) -> Values:
    """Add normal noise of so many standard deviations of the values."""
    spread = np.nanstd(values.astype(float))
    return like(values + how.dose * spread * how.random.normal(size=values.shape), values)


def corrupt(values: Values, how: Dosed) -> Values:
    """Replace a fraction of numbers by others in their range."""
    hit = how.random.random(values.shape) < how.dose
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    return like(np.where(hit, how.random.uniform(low, high, size=values.shape), values), values)


def permute(values: Values, how: Dosed) -> Values:
    """Give a fraction of the rows the value of another row, which differs if one is left.

    Rows are sorted by value, equal ones by chance, and their values moved by at least as many
    places as the most frequent value has rows: so each row of it gets another value.
    """
    rows = np.flatnonzero(how.random.random(len(values)) < how.dose)
    num = len(rows)
    if num < 2:
        return values
    _, codes, counts = np.unique(values[rows], return_inverse=True, return_counts=True)
    order = rows[np.lexsort((how.random.random(num), codes.reshape(-1)))]
    least = min(max(int(counts.max()), num // 4), num // 2)
    changed: Values = values.copy()
    changed[order] = np.roll(values[order], int(how.random.integers(least, num - least + 1)))
    return changed


def put(values: Values, how: Dosed) -> Values:
    """Write one value."""
    try:
        return np.full(len(values), str(how.value) if is_text(values) else float(str(how.value)))
    except ValueError as error:
        raise UsageError(
            f"`set` of a column of numbers needs a number as `value`: {error}"
        ) from error


def _drop(text: str, how: Dosed) -> str:
    """Drop a fraction of the words, at least one."""
    words = np.array(text.split())
    kept = how.random.random(len(words)) >= how.dose
    if kept.all() and len(words):
        kept[how.random.integers(len(words))] = False
    return " ".join(words[kept])


def _swap_letters(text: str, how: Dosed) -> str:
    """Swap two letters that stand beside each other and differ, as a typing error does."""
    pairs = range(len(text) - 1)
    places = [i for i in pairs if text[i] != text[i + 1] and text[i : i + 2].isalpha()]
    if not places:
        return text
    at = places[int(how.random.integers(len(places)))]
    return text[:at] + text[at + 1] + text[at] + text[at + 2 :]


def _other_letters(text: str, how: Dosed) -> str:
    """Replace a fraction of the letters by others; of one letter alone, that one."""
    steps = how.random.integers(1, 26, size=len(text))  # another letter, whichever it was
    hit = how.random.random(len(text)) < (how.dose if len(text) > 1 else 1.0)
    return "".join(
        chr((ord(letter.lower()) - ord("a") + step) % 26 + ord("a")) if is_hit else letter
        for letter, step, is_hit in zip(text, steps.tolist(), hit, strict=True)
    )


def _of_each(change: Callable[[str, Dosed], str]) -> Changer:
    return lambda values, how: np.array([change(text, how) for text in values.tolist()], dtype=str)


def like(changed: Values, values: Values) -> Values:
    """Return numbers as pixels where the values are: rounded, within what the type holds."""
    if values.dtype.kind not in "ui" or values.ndim < 3:
        return changed
    held = np.iinfo(values.dtype)
    return np.clip(np.rint(changed), held.min, held.max).astype(values.dtype)


PARTIAL = frozenset({"corrupt", "permute", "set"})
"""Changes that leave some rows as they are by their nature."""

OF_NUMBERS: Mapping[str, Changer] = {
    "noise": noise,
    "jitter": noise,
    "corrupt": corrupt,
    "permute": permute,
    "add": lambda values, how: values + how.dose,
    "set": put,
}
OF_TEXT: Mapping[str, Changer] = {
    "drop": _of_each(_drop),
    "typo": _of_each(_swap_letters),
    "case": _of_each(lambda text, how: text.swapcase()),
    "corrupt": _of_each(_other_letters),
    "permute": permute,
    "set": put,
}
