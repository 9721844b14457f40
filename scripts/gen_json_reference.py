"""Writes docs/reference/json.md from the values that `--json` writes, and their docstrings.

Run it after a change to a value: `python scripts/gen_json_reference.py`; `--stdout` prints the page
instead of writing it. What is said before the tables is kept in `_json_reference_head.md`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "reference" / "json.md"
HEAD = HERE / "_json_reference_head.md"

TITLES = {
    "run": "`run` and `show`",
    "runs": "`runs`",
    "tune": "`tune` and `study show`",
    "studies": "`study list`",
    "compare": "`compare`",
    "machine": "`machine`",
    "check": "`machine --check`",
    "data_check": "`data check`",
    "data_convert": "`data convert`",
    "fit_batch": "`fit --batch`",
    "fit_shapes": "`fit --shapes`",
    "levers": "`levers`",
    "stacks": "`stacks`",
    "ask": "`ask`",
    "report": "`report`",
    "export": "`export`",
    "patch": "`patch`",
    "data bench": "`data bench`",
    "fit": "`fit`",
    "verify training": "`verify training`",
    "verify power": "`verify power`",
    "search": "`search`",
}
Schema = Mapping[str, Any]


def json_reference() -> str:
    """The whole page as Markdown."""
    from steptime.report.document.json_schema import DOCUMENTS, json_schema

    schemas = {name: json_schema(name) for name in DOCUMENTS}
    parts = {name: part for schema in schemas.values() for name, part in schema["$defs"].items()}
    envelope = {"description": "", "properties": schemas["run"]["properties"]}
    rows = "".join(_rows(envelope, parts, {"ErrorItem": "#the-envelope"}))
    errors = "".join(_rows(parts["ErrorItem"], parts, {}))
    head = HEAD.read_text(encoding="utf-8")
    page = [head.replace("{envelope}", rows).replace("{errors}", errors)]
    told: dict[str, str] = {"Envelope": "#the-envelope", "ErrorItem": "#the-envelope"}
    for name in DOCUMENTS:
        title = TITLES[name]
        page.append(f"\n## `data` of {title}\n")
        first = _name_of(DOCUMENTS[name])
        told[first] = "#data-of-" + title.replace("`", "").replace(" ", "-")
        todo = [first]
        while todo:
            one = todo.pop(0)
            page.append("" if one == first else f"\n### {one}\n")
            for inner in _named_in(parts[one]):
                if inner not in told and "properties" in parts[inner]:
                    told[inner] = f"#{inner.lower()}"
                    todo.append(inner)
            page += ["\n", parts[one]["description"], "\n\n", *_rows(parts[one], parts, told)]
    return "".join(page)


def _name_of(document: Any) -> str:
    """The class of an envelope's data."""
    (cls,) = document.__args__
    return str(cls.__name__)


def _rows(part: Schema, parts: Schema, known: Mapping[str, str]) -> Iterator[str]:
    yield "| key | type | meaning |\n|---|---|---|\n"
    for key, inner in part["properties"].items():
        words = inner["description"].rstrip(".").replace("|", "\\|")
        yield f"| `{key}` | {_type_of(inner, parts, known)} | {words} |\n"


def _type_of(part: Schema, parts: Schema, known: Mapping[str, str]) -> str:
    """The type in words: `list of [Phase](#phase)`, `number or null`, `"ok" or "error"`."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        if "enum" in parts[name]:
            return ", ".join(f"`{word}`" for word in parts[name]["enum"])
        return f"[{name}]({known[name]})" if name in known else "object"
    if "const" in part:
        return f"{part['const']}"
    if "anyOf" in part:
        words = [_type_of(one, parts, known) for one in part["anyOf"]]
        return " or ".join(dict.fromkeys(words))
    if part.get("type") == "array":
        return f"list of {_type_of(part.get('items', {}), parts, known)}"
    if part.get("type") == "object":
        return f"object: name to {_type_of(part['additionalProperties'], parts, known)}"
    return {"string": "text", "boolean": "true or false"}.get(part["type"], str(part["type"]))


def _named_in(part: Any) -> Iterator[str]:
    """The names of the parts that a part refers to, in order."""
    if isinstance(part, dict):
        if "$ref" in part:
            yield part["$ref"].rpartition("/")[2]
        for one in part.values():
            yield from _named_in(one)
    elif isinstance(part, list):
        for one in part:
            yield from _named_in(one)


if __name__ == "__main__":
    if "--stdout" in sys.argv[1:]:
        sys.stdout.write(json_reference())
    else:
        PAGE.write_text(json_reference(), encoding="utf-8")
