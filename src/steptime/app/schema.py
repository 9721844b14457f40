"""Says what a command's `--json` document holds: for people in lines, for programs as a schema."""

from __future__ import annotations

import json

from steptime.report.document.json_schema import DOCUMENTS, json_schema, name_of
from steptime.report.text.schema_text import describe_document, list_documents

__all__ = ["DOCUMENTS", "render_schema", "schema_lines", "verb_lines"]


def render_schema(verb: str) -> str:
    """Return the JSON Schema of what a verb of `DOCUMENTS` writes, as text."""
    return json.dumps(json_schema(verb), indent=2, ensure_ascii=True) + "\n"


def schema_lines(verb: str, *, width: int) -> list[str]:
    """Return every key of what a verb of `DOCUMENTS` writes, with its type and its meaning."""
    return describe_document(verb, json_schema(verb), name_of(DOCUMENTS[verb]), width=width)


def verb_lines(*, width: int) -> list[str]:
    """Return one line a verb: what its document is about."""
    about = {
        verb: json_schema(verb)["$defs"][name_of(document)]["description"]
        for verb, document in DOCUMENTS.items()
    }
    return list_documents(about, width=width)
