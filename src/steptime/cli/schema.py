"""`steptime schema`: what the document of a command's `--json` holds."""

from __future__ import annotations

import argparse
import difflib
import sys

from steptime.cli.options import check_json
from steptime.cli.output import STDOUT, console_for, write_text
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
  steptime schema machine check
  steptime schema run --json run.schema.json
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `schema`."""
    parser.add_argument(
        "verb",
        metavar="VERB",
        nargs="*",
        help="a command, in one word or two; without it, all are listed",
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--json",
        metavar="FILE",
        nargs="?",
        const=STDOUT,
        help="write the JSON Schema of the document instead, to FILE or to stdout",
    )


def execute(options: argparse.Namespace) -> int:
    """Print the list of verbs, or what one of them writes."""
    check_json(options)
    from steptime.app.schema import render_schema, schema_blocks, verb_blocks

    verb = " ".join(options.verb)
    if verb:
        _check_verb(verb)
    elif options.json is not None:
        raise UsageError(
            "a JSON Schema is of one verb's document, and no verb was given.",
            hint="Write: steptime schema run --json",
        )
    if options.json is not None:
        write_text(options.json, render_schema(verb))
        return 0
    from steptime.report.text.paint_text import print_blocks

    print_blocks(schema_blocks(verb) if verb else verb_blocks(), console=console_for(sys.stdout))
    return 0


def _check_verb(verb: str) -> None:
    """Refuse a verb that writes no document.

    Raises:
        UsageError: there is none of that name.
    """
    from steptime.app.schema import VERBS

    if verb in VERBS:
        return
    parts = [name for name in VERBS if name.startswith(f"{verb} ")]
    near = difflib.get_close_matches(verb, VERBS, n=1)
    hint = f"There are: {', '.join(VERBS)}."
    if parts:
        hint = f"Its commands write one each: {', '.join(parts)}."
    elif near:
        hint = f"Did you mean `{near[0]}`?"
    raise UsageError(f"`{verb}` writes no document of its own.", hint=hint)
