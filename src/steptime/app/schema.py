"""Says what a command's `--json` document holds: for people in blocks, for programs as a schema."""

from __future__ import annotations

import json

from steptime.report.blocks.document.schema_report import document_blocks, documents_blocks
from steptime.report.blocks.values import Block
from steptime.report.document.json_schema import DOCUMENTS, VERBS, json_schema, name_of

__all__ = ["VERBS", "render_schema", "schema_blocks", "verb_blocks"]


def render_schema(verb: str) -> str:
    """Return the JSON Schema of what a verb of `VERBS` writes, as text."""
    return json.dumps(json_schema(VERBS[verb]), indent=2, ensure_ascii=True) + "\n"


def schema_blocks(verb: str) -> list[Block]:
    """Return every key of what a verb of `VERBS` writes, with its type and its meaning."""
    name = VERBS[verb]
    return document_blocks(verb, json_schema(name), name_of(DOCUMENTS[name]))


def verb_blocks() -> list[Block]:
    """Return one line a verb: what its document is about."""
    about = {
        verb: json_schema(name)["$defs"][name_of(DOCUMENTS[name])]["description"]
        for verb, name in VERBS.items()
    }
    return documents_blocks(about)
