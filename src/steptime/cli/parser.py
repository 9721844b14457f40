"""Commands that consist of commands, such as `steptime data bench`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module

from steptime.cli.options import Parser, add_command


def add_parts(parser: Parser, verb: str, names: Sequence[str]) -> None:
    """Add the commands of a verb: `NAME` is `cli/VERB_NAME.py`, with what a command has."""
    parts = parser.add_subparsers(
        title="commands", metavar="COMMAND --help", prog=f"steptime {verb}"
    )
    parser.commands = parts.choices
    for name in names:
        module = import_module(f"steptime.cli.{verb}_{name}")
        part = add_command(parts, name, module)
        part.set_defaults(execute_part=module.execute)


def execute_part(options: argparse.Namespace) -> int:
    """Run the command that was named."""
    code: int = options.execute_part(options)
    return code
