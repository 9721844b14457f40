"""Names of states for few columns: two settings of one lever never get the same name.

In: the states of a table or a line, and a width. Out: a name for each. Where the whole name has no
room, these go first, in this order: the ends of the settings' names (`num_workers=2` becomes
`workers=2`), the settings that all rows of the lever share, the middle of the name. Names in a
table that are still the same get the number of their trial.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from steptime.core.printable import printable
from steptime.core.units import format_count
from steptime.report.words.study.study_words import Setting, describe_applied, describe_state
from steptime.tune.values.study_values import Applied, State

_DOTS = "..."
_SAY_LITTLE = frozenset({"num", "is", "has"})  # first words of settings' names

Describe = Callable[[Applied], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedState:
    """What is to be named: a state beside its reference, its trial, or a name that it has."""

    state: State = ()
    reference: State = ()
    name: str | None = None
    number: int | None = None


def fitted_names(rows: Sequence[NamedState], width: int) -> list[str]:
    """Return a name of at most `width` columns a row; different states have different names."""
    names = _cut_names(rows, width)
    common = Counter(name for name, _ in {*zip(names, map(_whole, rows), strict=True)})
    return [
        _numbered(name, row.number, width) if common[name] > 1 else name
        for name, row in zip(names, rows, strict=True)
    ]


def line_names(state: State) -> list[str]:
    """Return the names of one state for a line, longest first; each of them tells its settings."""
    names = [describe_state(state)]
    for form in (_in_few_words, _values_alone):
        names.append(" + ".join(map(form, state)))
        if len(state) > 2:
            names.append(f"{form(state[0])} and {len(state) - 1} more")
    return [printable(name) for name in names if name]


def cut_in_the_middle(text: str, width: int) -> str:
    """Return the text in at most `width` columns: its beginning, `...`, and its end."""
    text = printable(text)
    if len(text) <= width:
        return text
    if width <= len(_DOTS) + 1:
        return text[: max(0, width)]
    left = width - len(_DOTS)
    tail = left // 2
    return text[: left - tail].rstrip() + _DOTS + text[len(text) - tail :].lstrip()


def _cut_names(rows: Sequence[NamedState], width: int) -> list[str]:
    told = _differing_settings(one for row in rows for one in row.state)
    return [_fitted(row, told, width) for row in rows]


def _differing_settings(every: Iterable[Applied]) -> Mapping[str, frozenset[str]]:
    """Return, by lever, the settings in which its rows differ."""
    rows: dict[str, list[Mapping[str, Setting]]] = {}
    for one in every:
        rows.setdefault(one.name, []).append(one.settings)
    return {
        lever: frozenset(
            name
            for name in {name for settings in found for name in settings}
            if len({repr(settings.get(name)) for settings in found}) > 1
        )
        for lever, found in rows.items()
    }


def _fitted(row: NamedState, told: Mapping[str, frozenset[str]], width: int) -> str:
    """Return the longest of the row's names that fits; the shortest, cut, where none does."""
    if row.name is not None:
        return cut_in_the_middle(row.name, width)
    forms: tuple[Describe, ...] = (
        describe_applied,
        _in_few_words,
        lambda one: _in_few_words(one, told.get(one.name)),
    )
    names = [_name(row, form) for form in forms]
    return next((n for n in names if len(n) <= width), None) or cut_in_the_middle(names[-1], width)


def _whole(row: NamedState) -> str:
    return row.name or _name(row, describe_applied)


def _name(row: NamedState, describe: Describe) -> str:
    """Return what is on, or what was added to more than the command as written."""
    added = tuple(one for one in row.state if one not in row.reference)
    if not row.state or not added:
        return describe_state(row.state, reference=row.reference)
    shown = " + ".join(map(describe, added if row.reference else row.state))
    return printable(f"+ {shown}" if row.reference else shown)


def _in_few_words(one: Applied, told: frozenset[str] | None = None) -> str:
    """Return a lever with short names of its settings: of all of them, or of those told."""
    if len(one.settings) < 2:
        return describe_applied(one)
    kept = {name: v for name, v in one.settings.items() if told is None or name in told}
    return " ".join([one.name, *(_setting(name, value) for name, value in kept.items())])


def _setting(name: str, value: Setting) -> str:
    words = [word for word in name.split("_") if word not in _SAY_LITTLE] or [name]
    if isinstance(value, bool):
        return words[0] if value else f"{words[0]}=off"
    return f"{words[0]}={_value(value)}"


def _values_alone(one: Applied) -> str:
    values = [value for value in one.settings.values() if not isinstance(value, bool)]
    return " ".join([one.name, *map(_value, values)])


def _value(value: str | int | float) -> str:
    return value if isinstance(value, str) else format_count(value)


def _numbered(name: str, number: int | None, width: int) -> str:
    if number is None:
        return name
    tag = f" #{number}"
    return cut_in_the_middle(name, max(1, width - len(tag))) + tag
