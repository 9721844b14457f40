"""Tells a JSON Schema of ours in words: one paragraph a key, the parts in the order of their use.

In: a schema of `report.document.json_schema`. Out: blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from steptime.report.blocks.phrasing import labeled
from steptime.report.blocks.values import (
    Blank,
    Block,
    CommandLine,
    Heading,
    Items,
    TableBlock,
)

Schema = Mapping[str, Any]

_NOTES = (
    "Every key is always there; null means not observed, never zero. Units are in the names: "
    "`_s` seconds, `_unix_s` seconds since 1970, `fraction` 0 to 1. New keys may appear within a "
    "schema number; none changes its meaning."
)


def document_blocks(verb: str, schema: Schema, first: str) -> list[Block]:
    """Return the envelope, then the data's class `first`, then every part that these refer to."""
    parts = schema["$defs"]
    blocks = labeled(("document", f"of `steptime {verb}`"), ("note", _NOTES))
    blocks += [Heading("The envelope"), _keys(schema, parts)]
    todo = [first, *_named_in(schema["properties"]["errors"])]
    told = set(todo)
    for name in todo:
        part = parts[name]
        title = f"{name}, which is `data`" if name == first else name
        blocks += [Heading(title), *labeled(("", part["description"])), _keys(part, parts)]
        fresh = [one for one in dict.fromkeys(_named_in(part)) if one not in told]
        fresh = [one for one in fresh if "properties" in parts[one]]
        told.update(fresh)
        todo += fresh
    same = f"steptime schema {verb} --json"
    return [*blocks, Blank(), CommandLine(same, "next", "the same as a JSON Schema: ")]


def documents_blocks(about: Mapping[str, str]) -> list[Block]:
    """Return one line a verb, with the first sentence about its document."""
    rows = [
        (verb, text.partition(". ")[0].rstrip(".").partition(";")[0])
        for verb, text in about.items()
    ]
    table = TableBlock(("verb", "its document"), rows, left=2, name="Documents", cut_last=True)
    return [table, Blank(), CommandLine("steptime schema run", "next")]


def _keys(part: Schema, parts: Schema) -> Items:
    return Items(
        [
            Text.assemble((key, "bold"), f": {type_of(one, parts)}; {one['description']}")
            for key, one in part["properties"].items()
        ]
    )


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
