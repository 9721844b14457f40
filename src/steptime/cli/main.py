"""The `steptime` command: parses, hands over to one command, turns errors into words and codes.

No room of the library is imported until a command needs it, so `steptime --help` answers at once.
Only `main` and `app.attempt` have a broad `except`; what these catch is our failure, kept in a file
that the message names.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from steptime.cli.options import Parser, add_command
from steptime.cli.output import error_text, say, write_failure
from steptime.errors import InterruptedByUserError, SteptimeError, StoreError, UsageError

COMMANDS = (
    "run",
    "tune",
    "fit",
    "patch",
    "runs",
    "show",
    "stacks",
    "ask",
    "report",
    "compare",
    "export",
    "study",
    "levers",
    "machine",
    "data",
    "verify",
    "search",
    "schema",
)
_WITH_COMMAND = ("run", "tune", "fit", "data", "search")
"""The user's command follows their first `--`."""
_WITHOUT_PROC = ("run", "patch", "levers", "schema")
"""They need no /proc; a `run` without it runs the command unobserved."""
_WITH_SIDES = ("compare",)
"""More of our own words follow their first `--`."""

_EXAMPLES = """\
examples:
  steptime run -- python train.py --lr 3e-4    measure a training
  steptime tune -- python train.py --lr 3e-4   make it faster, and prove it
  steptime fit --limit 8GiB -- python train.py make it fit into memory
  steptime show last                           print the newest report again
"""


class _Version(argparse.Action):
    """Prints the version, which is read only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from steptime.core.version import installed_version

        print(f"steptime {installed_version()}")
        parser.exit()


def entry() -> int:
    """Be the program: run one command, and end as the user's command ended."""
    code = main()
    if type(code) is int:
        return code
    from steptime.launch.end_alike import end_alike

    return end_alike(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run_command(words)
    except SteptimeError as error:
        return _fail(error, words)
    except KeyboardInterrupt:
        write_failure(InterruptedByUserError("interrupted"), _own(words))
        return InterruptedByUserError.exit_code
    except BrokenPipeError:
        # The reader of our stdout has left; this keeps Python from complaining when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except SystemExit as end:  # argparse, after --help and --version
        return int(end.code or 0)
    except OSError as error:
        return _fail(StoreError(f"this failed: {error}"), words)
    except Exception as error:
        from steptime.app.run.attempt import describe_failure

        if isinstance(error, ValueError) and "integer string conversion" in str(error):
            return _fail(SteptimeError(str(error)), words)
        return _fail(SteptimeError(describe_failure(error)), words)


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """Build the parser of all commands, or of one command alone: the others cost 15 ms."""
    parser = Parser(
        prog="steptime",
        usage="steptime [--help | --version] VERB ...",
        description=(
            "Measure a training command without changing it, make it faster, and prove\n"
            "that it trains as well as before."
        ),
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    # The first line shows these two; the screen is for the commands.
    parser.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    parser.add_argument("--version", action=_Version, nargs=0, help=argparse.SUPPRESS)
    commands = parser.add_subparsers(title="commands", metavar="VERB --help", prog="steptime")
    for name in COMMANDS if only is None else (only,):
        module = import_module(f"steptime.cli.{name}")
        command = add_command(commands, name, module)
        command.set_defaults(execute=module.execute)
    return parser


def _run_command(words: list[str]) -> int:
    ours, command = _split(words)
    parser = build_parser(ours[0] if ours and ours[0] in COMMANDS else None)
    if not ours:
        parser.print_help(sys.stderr)
        return UsageError.exit_code
    options = parser.parse_args(ours)
    options.command = command
    options.given = ours
    if ours[0] not in _WITHOUT_PROC:
        from steptime.core.kernel_files import need_proc

        need_proc()
    code: int = options.execute(options)
    return code


def _split(words: list[str]) -> tuple[list[str], list[str] | None]:
    """Return the words before the first `--`, and those behind it: a command or a second side."""
    if not words or words[0] not in (*_WITH_COMMAND, *_WITH_SIDES) or "--" not in words:
        return words, None
    place = words.index("--")
    return words[:place], words[place + 1 :]


def _own(words: list[str]) -> list[str]:
    """Return our words: those of a user's command are left out."""
    return words if words[:1] and words[0] in _WITH_SIDES else _split(words)[0]


def _fail(error: SteptimeError, words: list[str]) -> int:
    from steptime.core.printable import plain_numbers

    error.args = (plain_numbers(str(error)),)
    say(error_text(error))
    write_failure(error, _own(words))
    return error.exit_code
