"""Turns frozen values into JSON and back; the dataclasses' annotations are the only description.

In: a frozen dataclass (nested, with tuples, enumerations, mappings and optional fields), or JSON
text, or data as `json.loads` gives it. Out: the other form. The standard library writes; msgspec
reads and checks. This module adds what they leave to their caller: the schema number, the handling
of numbers that are not finite and of text that is not Unicode (such as a file name), and an error
that names the place. `core.store` reads and writes the files.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, TypeVar

from steptime.core.ranges import OutOfRangeError, check_numbers
from steptime.core.schema import SCHEMA
from steptime.errors import DamagedRunError, install_command

# The functions that read import msgspec: a command that starts a script only writes, and the
# script should not wait 12 ms for the import.

T = TypeVar("T")


# -- writing


def encode(value: object) -> str:
    """Return the value of a dataclass as one line of JSON, ASCII only.

    A number that is not finite becomes null where the field may be None.

    Raises:
        ValueError: a number that is not finite is in a field that may not be None.
    """
    try:
        return json.dumps(value, default=_open, allow_nan=False)
    except ValueError:
        finite = _finite(_plain(value))
    _check_finite(value, finite)
    return json.dumps(finite)


def to_json(value: object) -> dict[str, Any]:
    """Return the value of a dataclass as plain data, as a part of a larger document.

    Raises:
        ValueError: as for `encode`.
    """
    data: dict[str, Any] = json.loads(encode(value))
    return data


def render(value: object) -> str:
    """Return the value as a document for programs: keys sorted, indented, in ASCII, one newline.

    Every number that is not finite becomes null, so that the document can always be written.
    """
    return json.dumps(_finite(_plain(value)), sort_keys=True, indent=2) + "\n"


def _plain(value: object) -> Any:
    return json.loads(json.dumps(value, default=_open))


def _open(value: Any) -> dict[str, Any]:
    """Return one level of a dataclass, or of a mapping that is not a dict."""
    if is_dataclass(value):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON")


def _finite(data: Any) -> Any:
    """Return the data with null for every number that is not finite."""
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, dict):
        return {key: _finite(item) for key, item in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(item) for item in data]
    return data


def _check_finite(value: object, finite: Any) -> None:
    import msgspec

    try:
        msgspec.convert(finite, type(value))
    except msgspec.ValidationError as error:
        what = _describe(error, type(value).__name__, finite)
        raise ValueError(f"a number that is not finite: {what}") from error


# -- reading


def decode(cls: type[T], text: bytes | str, *, where: str | None = None) -> T:
    """Return the value of class `cls` that `encode` wrote as `text`.

    Keys that `cls` does not know are ignored; keys with a default may be missing.

    Args:
        cls: a dataclass.
        text: one JSON document.
        where: what errors call the text, such as a path.

    Raises:
        DamagedRunError: the text is not JSON, a field is missing or has another type, a number
            is out of range, or the schema is not ours.
    """
    import msgspec

    where = cls.__name__ if where is None else where
    try:
        value = msgspec.json.decode(text, type=cls)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        # This is slower, but it says what is wrong. It also reads text that is not Unicode.
        return from_json(cls, _load(text, where), where=where)
    schema = getattr(value, "schema", None)
    if schema is not None:
        check_schema({"schema": schema}, where=where)
    _check_ranges(value, where)
    return value


def from_json(cls: type[T], data: object, *, where: str | None = None) -> T:
    """Return the value of class `cls` in plain data; it is `decode` for a part of a document.

    A number that is not finite is read as null.

    Raises:
        DamagedRunError: a field is missing or has another type, a number is out of range, or the
            schema is not ours.
    """
    import msgspec

    where = cls.__name__ if where is None else where
    if isinstance(data, Mapping) and "schema" in cls.__annotations__:
        check_schema(data, where=where)
    try:
        value = msgspec.convert(_without_infinities(data), cls)
    except msgspec.ValidationError as error:
        hint = "the file is damaged or foreign"
        raise DamagedRunError(_describe(error, where, data), hint=hint) from error
    except (RecursionError, SystemError, UnicodeError) as error:
        # Half of a character, such as `\ud800`, where a word of ours is expected, is no Unicode.
        # Before 0.22, msgspec raises SystemError for a whole number that no float can hold.
        raise DamagedRunError(f"`{where}`: {error}", hint="the file is damaged") from error
    _check_ranges(value, where)
    return value


def _check_ranges(value: object, where: str) -> None:
    try:
        check_numbers(value)
    except OutOfRangeError as error:
        raise DamagedRunError(f"`{where}`: {error}", hint="the file is damaged") from error


def parse_document(text: bytes | str, *, checks_numbers: bool = True) -> Mapping[str, Any]:
    """Return the object in a JSON document of our schema, with its numbers checked.

    Args:
        text: the document.
        checks_numbers: False where the caller checks the few that it takes.

    Raises:
        ValueError: it is no JSON, no object, of another schema, or holds a number out of range.
    """
    try:
        data = json.loads(text)
    except RecursionError as error:
        raise ValueError(f"it is nested too deeply: {error}") from error
    if not isinstance(data, dict) or type(data.get("schema")) is not int:
        raise ValueError("it is not written by Steptime")
    if data["schema"] != SCHEMA:
        raise ValueError(f"its schema is {data['schema']!r:.40}, not {SCHEMA}")
    if checks_numbers:
        check_numbers(data)
    return data


def check_schema(data: Mapping[str, Any], *, where: str) -> None:
    """Refuse data that another version of Steptime, or another program, wrote.

    Raises:
        DamagedRunError: `data["schema"]` is not ours.
    """
    found = data.get("schema")
    if found == SCHEMA and type(found) is int:
        return
    if type(found) is int and found > SCHEMA:
        raise DamagedRunError(
            f"{where}: schema {found!r:.40} is newer than this Steptime, "
            f"which reads schema {SCHEMA}",
            hint="show it with the Steptime that wrote it, or upgrade: "
            + install_command("-U", "steptime"),
        )
    raise DamagedRunError(
        f"{where}: not written by Steptime: `schema` must be {SCHEMA}, got {found!r:.40}",
        hint="check the path; a run folder is .steptime/runs/<run id>",
    )


def _load(text: bytes | str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedRunError(
            f"{where} is not JSON: {error}", hint="the file is damaged"
        ) from error


def _without_infinities(data: object) -> object:
    try:
        json.dumps(data, allow_nan=False)  # C code: faster than visiting every number
    except ValueError:
        return _finite(data)
    return data


_MISSING = "Object missing required field `"


def _describe(error: Exception, where: str, data: object) -> str:
    """Return the words of msgspec with the place first, and the value that is found there.

    It turns ``Expected `str`, got `int` - at `$.argv[1]` `` into
    `` `command.json.argv[1]` must be `str`, got 3``.
    """
    what, _, path = str(error).partition(" - at ")
    place = path.replace("$", where, 1) if path else f"`{where}`"
    if what.startswith(_MISSING):
        return f"{place[:-1]}.{what[len(_MISSING) :]} is missing"
    if what.startswith("Expected "):
        expected, _, found = what[len("Expected ") :].partition(", got ")
        return f"{place} must be {expected}, got {_value_at(path, data) or found}"
    return f"{place}: {what[:1].lower()}{what[1:]}"


def _value_at(path: str, data: object) -> str | None:
    """Return the start of the value at a path of msgspec's; None if the path has several."""
    steps = _STEP.findall(path)
    if "".join(f".{name}" if name else f"[{index}]" for name, index in steps) != path.strip("`$"):
        return None  # `[...]` is any key of a mapping
    value: Any = data
    for name, index in steps:
        try:
            value = value[name] if name else value[int(index)]
        except (LookupError, TypeError):
            return None
    return f"{value!r:.40}"


_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
