"""Values of `measure.values.measurement` to plain JSON data and back.

In: a frozen dataclass (nested, with tuples, enumerations, mappings and optional fields), or data
as `json.load` gives it. Out: the other one. The annotations of the dataclass are the only
description; reading and writing files is left to `core.store`.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache, reduce
from operator import or_
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from steptime.core.schema import SCHEMA
from steptime.errors import DamagedRunError

T = TypeVar("T")

_NUMBERS = (int, float)


def to_json(value: object) -> dict[str, Any]:
    """The value of a dataclass as data that `json.dumps` takes.

    A number that is not finite becomes null where the field may be None.

    Raises:
        ValueError: a number that is not finite stands in a field that may not be None.
    """
    return _encode_fields(value, type(value).__name__)


def from_json(cls: type[T], data: object, *, where: str | None = None) -> T:
    """The value of class `cls` that `to_json` made `data` of.

    Keys that `cls` does not know are ignored; keys with a default may be missing.

    Args:
        cls: a dataclass.
        data: what `json.load` returned.
        where: what to call the data in errors, a path say.

    Raises:
        DamagedRunError: a field is missing or of another type, or the schema is not ours.
    """
    where = cls.__name__ if where is None else where
    described: Any = cls
    if isinstance(data, Mapping) and "schema" in _hints(described):
        check_schema(data, where=where)
    value: T = _decode_fields(described, data, where)
    return value


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
            f"{where}: schema {found} is newer than this Steptime, which reads schema {SCHEMA}",
            hint="show it with the Steptime that wrote it, or upgrade: pip install -U steptime",
        )
    raise DamagedRunError(
        f"{where}: not written by Steptime: `schema` must be {SCHEMA}, got {found!r}",
        hint="check the path; a run folder is .steptime/runs/<run id>",
    )


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)


def _strip_optional(hint: Any) -> tuple[Any, bool]:
    """The hint without None, and whether None was allowed; several plain types stay a union."""
    if get_origin(hint) not in (Union, types.UnionType):
        return hint, False
    parts = get_args(hint)
    inner = [part for part in parts if part is not type(None)]
    return reduce(or_, inner), len(inner) < len(parts)


# -- writing


def _encode_fields(value: Any, where: str) -> dict[str, Any]:
    cls: Any = type(value)
    hints = _hints(cls)
    return {
        field.name: _encode(getattr(value, field.name), hints[field.name], f"{where}.{field.name}")
        for field in fields(value)
    }


def _encode(value: Any, hint: Any, where: str) -> Any:
    inner, is_optional = _strip_optional(hint)
    if isinstance(value, float) and not math.isfinite(value):
        if is_optional:
            return None
        raise ValueError(f"`{where}` must be finite, got {value!r}")
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        item = get_args(inner)[0]
        return [_encode(v, item, f"{where}[{i}]") for i, v in enumerate(value)]
    if isinstance(value, Mapping):
        item = get_args(inner)[1]
        return {key: _encode(v, item, f"{where}.{key}") for key, v in value.items()}
    return _encode_fields(value, where) if is_dataclass(value) else value


# -- reading


def _decode_fields(cls: Any, data: object, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise _mistyped(where, "an object", data)
    hints = _hints(cls)
    values = {}
    for field in fields(cls):
        place = f"{where}.{field.name}"
        if field.name in data:
            values[field.name] = _decode(hints[field.name], data[field.name], place)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise DamagedRunError(f"`{place}` is missing", hint="the file is cut short or foreign")
    return cls(**values)


def _decode(hint: Any, data: object, where: str) -> Any:
    inner, is_optional = _strip_optional(hint)
    if data is None and is_optional:
        return None
    origin = get_origin(inner)
    if origin in (Union, types.UnionType):
        return _decode_union(get_args(inner), data, where)
    if origin is tuple:
        return _decode_tuple(get_args(inner)[0], data, where)
    if origin is not None:
        return _decode_mapping(get_args(inner)[1], data, where)
    if is_dataclass(inner):
        return _decode_fields(inner, data, where)
    return _decode_plain(inner, data, where)


def _decode_tuple(item: Any, data: object, where: str) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise _mistyped(where, "an array", data)
    return tuple(_decode(item, value, f"{where}[{i}]") for i, value in enumerate(data))


def _decode_mapping(item: Any, data: object, where: str) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise _mistyped(where, "an object", data)
    return {key: _decode(item, value, f"{where}.{key}") for key, value in data.items()}


def _decode_union(classes: tuple[type, ...], data: object, where: str) -> Any:
    """One of several plain types, as they are in JSON: 1 stays a whole number, 1.0 does not."""
    if type(data) in classes:
        return _decode_plain(type(data), data, where)
    raise _mistyped(where, " or ".join(cls.__name__ for cls in classes), data)


def _decode_plain(cls: type, data: object, where: str) -> Any:
    if issubclass(cls, Enum):
        return _decode_enum(cls, data, where)
    if cls is float:
        return _decode_float(data, where)
    # `type() is`, for a bool is an int to isinstance.
    if type(data) is not cls:
        raise _mistyped(where, cls.__name__, data)
    return data


def _decode_enum(cls: type[Enum], data: object, where: str) -> Enum:
    words = [str(member.value) for member in cls]
    if data not in words:
        raise _mistyped(where, f"one of {', '.join(words)}", data)
    return cls(data)


def _decode_float(data: object, where: str) -> float:
    if type(data) not in _NUMBERS or not math.isfinite(data):  # type: ignore[arg-type]
        raise _mistyped(where, "a finite number", data)
    return float(data)  # type: ignore[arg-type]


def _mistyped(where: str, expected: str, data: object) -> DamagedRunError:
    seen = repr(data)
    seen = seen if len(seen) <= 40 else f"{seen[:37]}..."
    return DamagedRunError(
        f"`{where}` must be {expected}, got {seen}", hint="the file is damaged or foreign"
    )
