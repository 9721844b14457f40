"""Reads the options of a command from a table that is written as its help is read.

A line without indent names a group. `  --budget TIME  how long (default: 10m)` is an option:

- no word behind it: a switch; `[WORD]`: its value may be left out, then it is the default or `-`;
  `{a,b}`: one of these; `N`, `STEP` and `STEPS` are whole numbers, `X` and `MS` are numbers;
- `(default: 10m)` in one word is its default, `(required)` and `(repeatable)` say what they say;
- a line without dashes is a word of the command: `ID`, `[ID]`, `ID...` or `[ID...]`; one without
  a meaning is not in the help.

A deeper indent continues the meaning above.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import Any

_DEFAULT = re.compile(r"\(default: ([^\s()]+)\)")
_TYPES: dict[str, type] = {"N": int, "STEP": int, "STEPS": int, "X": float, "MS": float}
_DEEP = " " * 6


def add_table(parser: argparse.ArgumentParser, table: str) -> None:
    """Add the options and words of a table to a parser."""
    group: argparse._ActionsContainer = parser
    for line in _entries(table):
        if line[0] != " ":
            group = parser.add_argument_group(line.removesuffix(":"))
            continue
        spec, _, meaning = line.strip().partition("  ")
        meaning = meaning.strip()
        (_add_option if spec[0] == "-" else _add_word)(group, spec, meaning)


def _entries(table: str) -> Iterator[str]:
    """Yield the lines, each with those that continue it."""
    entry = ""
    for line in table.strip("\n").splitlines():
        if line.startswith(_DEEP):
            entry += f" {line.strip()}" if "  " in entry.strip() else f"  {line.strip()}"
            continue
        if entry:
            yield entry
        entry = line
    if entry:
        yield entry


def _add_option(group: argparse._ActionsContainer, spec: str, meaning: str) -> None:
    names = re.findall(r"(?<!\S)--?[\w-]+", spec)
    value = spec.rpartition(names[-1])[2].strip()
    found = _DEFAULT.search(meaning)
    default: Any = found and found[1]
    given: dict[str, Any] = {"help": meaning.replace("%", "%%")}
    if not value:
        group.add_argument(*names, action="store_true", **given)
        return
    if "(required)" in meaning:
        given["required"] = True
    if value.startswith("{"):
        given["choices"] = value.strip("{}").split(",")
    else:
        given["metavar"] = value.strip("[]") if value[0] == "[" else value.partition(" [")[0]
        given["type"] = kind = _TYPES.get(given["metavar"], str)
        default = default and kind(default)
    if value[0] == "[":
        without = "-" if given["metavar"] == "FILE" else ""
        given |= {"nargs": "?", "const": without if default is None else default}
    elif "..." in value:
        given |= {"nargs": "+", "action": "extend"}
    elif "(repeatable)" in meaning:
        given |= {"action": "append", "default": []}
    elif default is not None:
        given["default"] = default
    group.add_argument(*names, **given)


def _add_word(group: argparse._ActionsContainer, spec: str, meaning: str) -> None:
    name = spec.strip("[].")
    may_miss, is_many = spec.startswith("["), "..." in spec
    found = _DEFAULT.search(meaning)
    group.add_argument(
        re.sub(r"\W+", "_", name.lower()),
        metavar=name,
        nargs={(True, True): "*", (True, False): "?", (False, True): "+"}.get((may_miss, is_many)),
        default=found and found[1],
        help=meaning.replace("%", "%%") or argparse.SUPPRESS,
    )
