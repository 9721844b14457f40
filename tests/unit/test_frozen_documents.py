"""What programs read of `--json` stays: no key goes or changes its type without a new number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from steptime.core.schema import DOCUMENT_SCHEMA
from steptime.report.document.json_schema import DOCUMENTS, json_schema

FROZEN = Path(__file__).parents[1] / "golden" / "documents.txt"
"""Every key of every document with its type; the first line is the number of the documents."""

Schema = Mapping[str, Any]


def kind_of(part: Schema, parts: Schema) -> str:
    if "$ref" in part:
        return kind_of(parts[part["$ref"].rpartition("/")[2]], parts)
    if "anyOf" in part:
        return "|".join(sorted({kind_of(one, parts) for one in part["anyOf"]}))
    if "enum" in part or "const" in part:
        values = part["enum"] if "enum" in part else [part["const"]]
        return "|".join(sorted({type(value).__name__ for value in values}))
    kind = str(part.get("type", "any"))
    return f"array of {kind_of(part.get('items', {}), parts)}" if kind == "array" else kind


def parts_in(part: Any) -> Iterator[str]:
    """The names of the parts that a value refers to, in its items and alternatives, too."""
    if isinstance(part, dict):
        if "$ref" in part:
            yield part["$ref"].rpartition("/")[2]
        for name in ("anyOf", "items", "prefixItems", "additionalProperties"):
            yield from parts_in(part.get(name))
    elif isinstance(part, list):
        for one in part:
            yield from parts_in(one)


def keys_of(part: Schema, parts: Schema, path: str, above: frozenset[str]) -> Iterator[str]:
    for key, one in part.get("properties", {}).items():
        yield f"{path}{key}: {kind_of(one, parts)}"
        for name in dict.fromkeys(parts_in(one)):
            if name not in above:  # a part may hold others of its kind
                yield from keys_of(parts[name], parts, f"{path}{key}.", above | {name})


def frozen_now() -> list[str]:
    lines, told = [f"schema {DOCUMENT_SCHEMA}"], dict[str, str]()
    for verb, document in DOCUMENTS.items():
        same = told.setdefault(str(document), verb)
        if same != verb:
            lines.append(f"{verb}: as {same}")
            continue
        schema = json_schema(verb)
        lines += keys_of(schema, schema["$defs"], f"{verb} ", frozenset())
    return list(dict.fromkeys(lines))


def test_no_key_of_a_document_goes_away_or_changes_its_type_without_a_new_number() -> None:
    number, *before = FROZEN.read_text(encoding="utf-8").splitlines()
    if number == f"schema {DOCUMENT_SCHEMA}":
        gone = sorted(set(before) - set(frozen_now()))
        assert not gone, f"give DOCUMENT_SCHEMA a new number, for programs read these: {gone}"


def test_every_key_of_a_document_is_frozen(request: pytest.FixtureRequest) -> None:
    now = frozen_now()
    if request.config.getoption("--update-golden"):
        test_no_key_of_a_document_goes_away_or_changes_its_type_without_a_new_number()
        FROZEN.write_text("\n".join(now) + "\n", encoding="utf-8")
    before = FROZEN.read_text(encoding="utf-8").splitlines()
    new = sorted(set(now) - set(before))
    assert not new, f"freeze these with --update-golden: {new}"


def test_a_key_that_changes_its_type_is_seen() -> None:
    parts = {"Thing": {"type": "object", "properties": {"n": {"type": "integer"}}}}
    whole = {"properties": {"things": {"type": "array", "items": {"$ref": "#/$defs/Thing"}}}}
    assert list(keys_of(whole, parts, "run ", frozenset())) == [
        "run things: array of object",
        "run things.n: integer",
    ]
