"""Says what a command's `--json` document holds: for people in lines, for programs as a schema."""

from __future__ import annotations

import json

from steptime.report.document.json_schema import DOCUMENTS, VERBS, json_schema, name_of
from steptime.report.text.schema_text import describe_document, list_documents

__all__ = ["VERBS", "render_schema", "schema_lines", "verb_lines"]


def render_schema(verb: str) -> str:
    """Return the JSON Schema of what a verb of `VERBS` writes, as text."""
    return json.dumps(json_schema(VERBS[verb]), indent=2, ensure_ascii=True) + "\n"


def schema_lines(verb: str, *, width: int) -> list[str]:
    """Return every key of what a verb of `VERBS` writes, with its type and its meaning."""
    name = VERBS[verb]
    return describe_document(verb, json_schema(name), name_of(DOCUMENTS[name]), width=width)


def verb_lines(*, width: int) -> list[str]:
    """Return one line a verb: what its document is about."""
    about = {
        verb: json_schema(name)["$defs"][name_of(DOCUMENTS[name])]["description"]
        for verb, name in VERBS.items()
    }
    return list_documents(about, width=width)
