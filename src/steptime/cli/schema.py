"""`steptime schema`: what the document of a command's `--json` holds."""

from __future__ import annotations

import argparse
import difflib
import json
import sys

from steptime.cli.options import JSON
from steptime.cli.output import console_for, write_text
from steptime.errors import UsageError

SUMMARY = "say what a command's --json document holds"
DESCRIPTION = """\
Print every key of the document that a command writes with --json: its type and
its meaning. With --json, print a JSON Schema (draft 2020-12) of the document,
which any validator reads. Without a verb, list the verbs.

`schema` in a document is its number, now 2. Within a number new keys, codes,
causes and names may appear; no key goes away or changes its type, its unit or
its meaning. Stored runs have a number of their own.
"""
USAGE = "steptime schema [VERB] [--json [FILE]]"
EXAMPLES = """\
examples:
  steptime schema
  steptime schema run
  steptime schema show study
  steptime schema run --json run.schema.json
"""
OPTIONS = (
    """\
  [VERB...]  a command, in one word or two; without it, all are listed
output:
"""
    + JSON
)


def execute(options: argparse.Namespace) -> int:
    """Print the list of verbs, or what one of them writes."""
    from steptime.report.document.json_schema import DOCUMENTS, json_schema, name_of

    verb = " ".join(options.verb)
    if verb:
        _check_verb(verb)
    elif options.json is not None:
        raise UsageError(
            "a JSON Schema is of one verb's document, and no verb was given.",
            hint="Write: steptime schema run --json",
        )
    if options.json is not None:
        document = json.dumps(json_schema(verb), indent=2, ensure_ascii=True)
        write_text(options.json, document + "\n")
        return 0
    from steptime.report.blocks.document.schema_report import document_blocks, documents_blocks
    from steptime.report.text.paint_text import print_blocks

    if verb:
        blocks = document_blocks(verb, json_schema(verb), name_of(DOCUMENTS[verb]))
    else:
        about = {
            one: json_schema(one)["$defs"][name_of(document)]["description"]
            for one, document in DOCUMENTS.items()
        }
        blocks = documents_blocks(about)
    print_blocks(blocks, console=console_for(sys.stdout))
    return 0


def _check_verb(verb: str) -> None:
    """Refuse a verb that writes no document.

    Raises:
        UsageError: there is none of that name.
    """
    from steptime.report.document.json_schema import DOCUMENTS

    if verb in DOCUMENTS:
        return
    parts = [name for name in DOCUMENTS if name.startswith(f"{verb} ")]
    near = difflib.get_close_matches(verb, DOCUMENTS, n=1)
    hint = f"There are: {', '.join(DOCUMENTS)}."
    if parts:
        hint = f"Its commands write one each: {', '.join(parts)}."
    elif near:
        hint = f"Did you mean `{near[0]}`?"
    raise UsageError(f"`{verb}` writes no document of its own.", hint=hint)
