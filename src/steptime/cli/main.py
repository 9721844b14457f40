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

from steptime.cli.output import STDOUT, check_target, error_text, say, set_tone, write_failure
from steptime.cli.parser import Parser, add_command
from steptime.errors import InterruptedByUserError, SteptimeError, StoreError, UsageError

COMMANDS = {
    "run": "run.run",
    "tune": "study.tune",
    "fit": "fit.fit",
    "patch": "study.patch",
    "list": "list",
    "show": "show",
    "attach": "run.attach",
    "report": "report",
    "compare": "run.compare",
    "export": "run.export",
    "rm": "rm",
    "prune": "prune",
    "levers": "study.levers",
    "machine": "machine.machine",
    "doctor": "machine.doctor",
    "plan": "plan.plan",
    "data": "data.data",
    "verify": "verify.verify",
    "sweep": "study.sweep",
    "quantize": "quantize.quantize",
    "schema": "schema",
}
"""The commands, in the order of the help, and the module of each."""

_WITH_COMMAND = ("run", "tune", "fit", "plan", "data", "sweep")
"""The user's command follows their first `--`."""
_WITH_COMMAND_ALONE = ("run", "tune", "fit")
"""They take no other words, so the command is known without a `--`, too."""
_WITHOUT_PROC = ("run", "patch", "levers", "schema")
"""They need no /proc; a `run` without it runs the command unobserved."""
_WITH_SIDES = ("compare",)
"""More of our own words follow their first `--`."""

_EXAMPLES = """\
examples:
  steptime run -- python train.py --lr 3e-4    measure a training
  steptime tune -- python train.py --lr 3e-4   make it faster, and prove it
  steptime fit --memory-limit 8GiB -- python train.py

exit codes:
  0    done; "nothing helps" and "it does not fit" are answers, too
  1    a failure of Steptime, of the disk, or of data that are damaged
  2    wrong usage, or what was named is not there or cannot be used
  3    the training command failed
  4    it could not be told: too few runs, too much noise, no loader, no step
  5    a gate was not met: a FAIL, --require-speedup, --fail-if-slower, ...
  124  the time was up before there was an answer
  126  the command cannot be run; 127: it was not found
  130  interrupted; what was found is kept
  141  the reader of the output has left
  `steptime run` ends as its command ended.

everywhere: -q: only errors; -v: all of a report; --no-color or NO_COLOR
"""


class _Version(argparse.Action):
    """Prints the version, which is read only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from steptime.core.version import installed_version

        print(f"steptime {installed_version()}")
        parser.exit()


def entry() -> int:
    """Be the program: run one command, and end as the user's command ended."""
    if "_ARGCOMPLETE" in os.environ and "COMP_LINE" in os.environ:
        from steptime.cli.completion import complete

        complete(build_parser, tuple(COMMANDS))
    code = main()
    if type(code) is int:
        return code
    from steptime.launch.end_alike import end_alike

    return end_alike(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    ours = words
    try:
        parser = build_parser(words[0] if words and words[0] in COMMANDS else None)
        given, command = _split(words, parser)
        ours = words if words[:1] and words[0] in _WITH_SIDES else given
        if words[len(given) : len(given) + 1] != ["--"]:
            _refuse_value_apart(parser, given, command)
        code = _run_command(parser, given, command)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except SteptimeError as error:
        return _fail(error, ours)
    except KeyboardInterrupt:
        write_failure(InterruptedByUserError("interrupted"), ours)
        return InterruptedByUserError.exit_code
    except BrokenPipeError:
        _drop_unwritten()
        return 141
    except OSError as error:
        code = _fail(StoreError(f"this failed: {error}"), ours)
        _drop_unwritten()
        return code
    except Exception as error:
        from steptime.app.run.attempt import describe_failure

        if {"-v", "--verbose"} & set(ours):
            import traceback

            traceback.print_exc()

        if isinstance(error, ValueError) and "integer string conversion" in str(error):
            return _fail(SteptimeError(str(error)), ours)
        return _fail(SteptimeError(describe_failure(error)), ours)


def build_parser(only: str | None = None) -> Parser:
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
        add_command(commands, name, import_module(f"steptime.cli.{COMMANDS[name]}"))
    parser.commands = commands.choices
    return parser


def _run_command(parser: Parser, ours: list[str], command: list[str] | None) -> int:
    try:
        options = parser.parse_args(ours)
        options.command = command
        options.given = ours
        if ours[0] not in _WITHOUT_PROC:
            from steptime.core.kernel_files import need_proc

            need_proc()
        set_tone(
            is_quiet=options.quiet, is_colored=not options.no_color, is_verbose=options.verbose
        )
        target = getattr(options, "json", None)
        check_target("--json", None if target == STDOUT else target)
        code: int = options.execute(options)
        return code
    except SystemExit as end:  # after a help, that of a second side, too, or --version
        return int(end.code or 0)


def _split(words: list[str], parser: Parser) -> tuple[list[str], list[str] | None]:
    """Return our words, and those of the command or of the second side; None where there are none.

    They are parted by the first `--`. Where `run`, `tune` and `fit` have another word before it,
    or there is none, the command begins at the first word that is neither an option nor its value.
    """
    verb = words[0] if words else ""
    if verb not in (*_WITH_COMMAND, *_WITH_SIDES):
        return words, None
    dashes = words.index("--") if "--" in words else None
    before = words[1:dashes]
    if verb in _WITH_COMMAND_ALONE:
        reader = parser.commands[verb]
        place = reader.command_at(before, takes_optional=True)
        # Behind an unknown option, its value may look like the command: a `--` says where that is.
        is_marked = dashes is not None and (place is None or not reader.knows(before[:place]))
        place = None if is_marked else reader.command_at(before)
        if place is not None:
            return words[: place + 1], words[place + 1 :]
    if dashes is None:
        return words, None
    return words[:dashes], words[dashes + 1 :]


def _refuse_value_apart(parser: Parser, ours: list[str], command: list[str] | None) -> None:
    """Refuse `--json FILE python train.py`: without a `--`, the file would be the command."""
    from shutil import which

    if command and parser.commands[ours[0]].takes_optional(ours[-1]) and not which(command[0]):
        meant = f"If it belongs to {ours[-1]}, write {ours[-1]}={command[0]}"
        raise UsageError(
            f"`{command[0]}` is no command.", hint=f"{meant}, or `--` before the command."
        )


def _drop_unwritten() -> None:
    """Keep Python from complaining, when it exits, of what a stdout did not take."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _fail(error: SteptimeError, ours: list[str]) -> int:
    from steptime.core.printable import plain_numbers

    error.args = (plain_numbers(str(error)),)
    say(error_text(error))
    write_failure(error, ours)
    return error.exit_code
