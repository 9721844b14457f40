"""Tells a JSON Schema of ours in words: one paragraph a key, the parts in the order of their use.

In: a schema of `report.document.json_schema`. Out: lines of text.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

_NOTES = (
    "Every key is always there; null means not observed, never zero. Units are in the names: "
    "`_s` seconds, `_unix_s` seconds since 1970, `fraction` 0 to 1. New keys may appear within a "
    "schema number; none changes its meaning."
)
_INDENT = "    "
_MIN_WIDTH = 60
_MAX_WIDTH = 100


def describe_document(verb: str, schema: Schema, first: str, *, width: int) -> list[str]:
    """Return the envelope, then the data's class `first`, then every part that these refer to."""
    width = min(max(width, _MIN_WIDTH), _MAX_WIDTH)
    parts = schema["$defs"]
    lines = [f"The document of `steptime {verb}`", "", *textwrap.wrap(_NOTES, width), ""]
    lines += ["The envelope", *_keys(schema, parts, width)]
    todo = [first, *_named_in(schema["properties"]["errors"])]
    told = set(todo)
    for name in todo:
        part = parts[name]
        title = f"{name}, which is `data`" if name == first else name
        lines += [
            "",
            title,
            *_wrapped(part["description"], width, "  "),
            *_keys(part, parts, width),
        ]
        fresh = [one for one in dict.fromkeys(_named_in(part)) if one not in told]
        fresh = [one for one in fresh if "properties" in parts[one]]
        told.update(fresh)
        todo += fresh
    lines += ["", f"  steptime schema {verb} --json   # the same as a JSON Schema"]
    return lines


def list_documents(about: Mapping[str, str], *, width: int) -> list[str]:
    """Return one line a verb, with the first sentence about its document."""
    room = max(width, _MIN_WIDTH)
    broad = max(map(len, about))
    lines = []
    for verb, text in about.items():
        first = text.partition(". ")[0].rstrip(".").partition(";")[0]
        told = textwrap.shorten(first, room - broad - 2, placeholder="…")
        lines.append(f"{verb:<{broad}}  {told}")
    return [*lines, "", "  steptime schema run"]


def _keys(part: Schema, parts: Schema, width: int) -> Iterator[str]:
    for key, inner in part["properties"].items():
        told = f"{key}: {type_of(inner, parts)}"
        yield from textwrap.wrap(
            told, width, initial_indent="  ", subsequent_indent="      ", break_long_words=False
        )
        yield from _wrapped(inner["description"], width, _INDENT)


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent)


def type_of(part: Schema, parts: Schema) -> str:
    """Return the type in words: `list of Phase`, `number or null`, `ok, partial, error`."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return ", ".join(map(str, parts[name]["enum"])) if "enum" in parts[name] else str(name)
    if "const" in part:
        return f"{part['const']}"
    if "anyOf" in part:
        return " or ".join(dict.fromkeys(type_of(one, parts) for one in part["anyOf"]))
    if part.get("type") == "array":
        return f"list of {type_of(part.get('items', {}), parts)}"
    if part.get("type") == "object":
        return f"object: name to {type_of(part['additionalProperties'], parts)}"
    kind = str(part.get("type", "any"))
    return {"string": "text", "boolean": "true or false"}.get(kind, kind)


def _named_in(part: Any) -> Iterator[str]:
    """Yield the names of the parts that a part refers to, in order."""
    if isinstance(part, dict):
        if "$ref" in part:
            yield part["$ref"].rpartition("/")[2]
        for one in part.values():
            yield from _named_in(one)
    elif isinstance(part, list):
        for one in part:
            yield from _named_in(one)
