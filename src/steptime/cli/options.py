"""What all command lines share: the parser, common options, and their values."""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, NoReturn

from steptime.cli.output import STDOUT, check_target
from steptime.errors import UsageError

_TIME = re.compile(r"(\d+(?:\.\d+)?)([smh])")
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?([KMGT]i?B)")
_SIZE_UNITS = {f"{letter}iB": 1024**n for n, letter in enumerate("KMGT", start=1)} | {
    f"{letter}B": 1000**n for n, letter in enumerate("KMGT", start=1)
}
_PERCENT = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?%")
_NEGATIVE = re.compile(r"-\.?\d")
_PRICE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(?:/h)?")


class Parser(argparse.ArgumentParser):
    """Raises instead of exiting: argparse has no other way to do that before Python 3.14.

    Attributes:
        commands: the parsers of its commands by name, where it consists of commands.
    """

    commands: Mapping[str, Parser] = MappingProxyType({})

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and where the help is."""
        self.refuse(f"{message.removeprefix('argument ')}.")

    def refuse(self, message: str, *, nearest: Sequence[str] = ()) -> NoReturn:
        """Say what is wrong, what was meant by it, and where the help is."""
        meant = f"Did you mean `{nearest[0]}`? " if nearest else ""
        raise UsageError(message, hint=f"{meant}See `{self.prog} --help`.")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse words; what is not known is refused here, where the nearest is known."""
        words = self._joined(list(sys.argv[1:] if args is None else args))
        if self.commands and not words:
            self.print_help(sys.stderr)
            self.exit(UsageError.exit_code)
        command = next((word for word in words if not word.startswith("-")), None)
        if self.commands and command is not None and command not in self.commands:
            known = {name: f"{self.prog} {name}" for name in self.commands}
            for name, group in self.commands.items():
                known |= {part: f"{self.prog} {name} {part}" for part in group.commands}
            near = [known[name] for name in get_close_matches(command, known, n=1)]
            self.refuse(f"there is no command `{self.prog} {command}`.", nearest=near)
        found, unknown = super().parse_known_args(words, namespace)
        option = next((word for word in unknown if word.startswith("-")), None)
        if option is not None:
            self._refuse_option(option.partition("=")[0], words)
        if unknown:
            self.refuse(f"`{unknown[0]}` is one word too many.")
        return found, []

    def _refuse_option(self, name: str, words: Sequence[str]) -> NoReturn:
        known = {given.strip("-"): given for given in self._option_string_actions}
        near = [known[one] for one in get_close_matches(name.strip("-"), known, n=1)]
        message = f"there is no option `{name}`."
        place = self.command_at(words, takes_optional=True)
        if place is not None and "-- COMMAND" in (self.usage or "") and name in words[place:]:
            message += " If it is the command's own: that comes after `--`."
        self.refuse(message, nearest=near)

    def command_at(self, words: Sequence[str], *, takes_optional: bool = False) -> int | None:
        """Return where a command begins: the first word that is neither an option nor its value.

        Args:
            words: what follows the verb; no `--` is among them.
            takes_optional: whether an option whose value may be left out takes the next word.

        Returns:
            The place of the word; None where there is none. All that follows an unknown option is
            the command's: the option is refused all the same.
        """
        place = 0
        while place < len(words) and words[place].startswith("-"):
            name, _, value = words[place].partition("=")
            option = self._option_string_actions.get(name)
            place += 1
            if option is None:
                break
            following = itertools.takewhile(lambda word: not word.startswith("-"), words[place:])
            if option.nargs == "+":
                place += len(list(following))
            elif not value and (option.nargs is None or (option.nargs == "?" and takes_optional)):
                place += option.nargs is None or next(following, None) is not None
        return place if place < len(words) else None

    def takes_optional(self, word: str) -> bool:
        """Tell whether a word is an option whose value may be left out."""
        option = self._option_string_actions.get(word)
        return option is not None and option.nargs == "?"

    def _joined(self, words: list[str]) -> list[str]:
        """Return the words, each negative value with its option: argparse would see two options."""
        joined: list[str] = []
        for word in words:
            option = self._option_string_actions.get(joined[-1]) if joined else None
            if option is not None and option.nargs is None and _NEGATIVE.match(word):
                joined[-1] += f"={word}"
            else:
                joined.append(word)
        return joined


def add_command(commands: Any, name: str, module: ModuleType) -> Parser:
    """Add a command that a module describes: SUMMARY, DESCRIPTION, USAGE, EXAMPLES, `add_options`.

    Args:
        commands: what `add_subparsers` returned.
        name: as it is typed.
        module: one of `steptime.cli`.
    """
    command: Parser = commands.add_parser(
        name,
        help=module.SUMMARY,
        description=module.DESCRIPTION,
        usage=module.USAGE,
        epilog=module.EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_options(command)
    command.set_defaults(parser=command)
    return command


def take_command(options: argparse.Namespace, *, verb: str, usage: str) -> tuple[str, ...]:
    """Return the user's command.

    Raises:
        UsageError: there is none, its beginning cannot be told, or this is Windows.
    """
    refuse_windows(verb)
    if getattr(options, "words", None):
        _ask_for_dashes(options)
    if not options.command:
        raise UsageError("no command was given.", hint=f"usage: {usage}")
    return tuple(options.command)


def _ask_for_dashes(options: argparse.Namespace) -> NoReturn:
    """Show the command line with a `--` where it belongs; a later one is the command's own."""
    verbs = len(options.parser.prog.split()) - 1
    place = verbs + (options.parser.command_at(options.given[verbs:], takes_optional=True) or 0)
    rest = [] if options.command is None else ["--", *options.command]
    right = shlex.join(["steptime", *options.given[:place], "--", *options.given[place:], *rest])
    raise UsageError("the command must come after `--`.", hint=f"Write: {right}")


def refuse_windows(verb: str) -> None:
    """Refuse a verb that works only on Linux.

    Raises:
        UsageError: this is Windows.
    """
    if sys.platform == "win32":
        raise UsageError(
            f"`steptime {verb}` does not work on Windows.",
            hint="Use it in WSL 2, which is a Linux.",
        )


INSTEAD = "write one JSON document instead, to FILE or to stdout"
BESIDE = "write one JSON document to FILE beside the report, or to stdout instead of it"


def add_json(group: argparse._ActionsContainer, *, what: str = INSTEAD) -> None:
    """Add `--json`, alone for stdout or with a file."""
    group.add_argument(
        "--json",
        metavar="FILE",
        nargs="?",
        const=STDOUT,
        help=what,
    )


def add_run_id(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names a run."""
    parser.add_argument(
        "run", metavar="ID", help="the id of a run, the beginning of it, or `last` for the newest"
    )


LONGEST = "default: the one that lasted longest"


def add_training(group: argparse._ActionsContainer, *, what: str, default: str = LONGEST) -> None:
    """Add `--training`, which names one of several trainings of a command."""
    group.add_argument(
        "--training",
        metavar="N",
        type=int,
        help=f"{what} training N of a command that started several ({default})",
    )


def add_store(group: argparse._ActionsContainer) -> None:
    """Add `--store`; its default is the current folder."""
    group.add_argument(
        "--store",
        metavar="DIR",
        help="the folder that holds .steptime (default: the current folder)",
    )


def check_json(options: argparse.Namespace) -> None:
    """Refuse a file of `--json` that cannot be written, before anything is done.

    Raises:
        UsageError: its folder is missing, or it is a folder.
    """
    if options.json != STDOUT:
        check_target("--json", options.json)


def store_folder(options: argparse.Namespace) -> str | None:
    """Return the folder of `--store`, from which something is read; None where it is not given.

    Raises:
        UsageError: the name is empty.
    """
    if options.store == "":
        raise UsageError("--store names no folder.", hint="Write: --store DIR, or leave it out.")
    store: str | None = options.store
    return store


def store_to_write(options: argparse.Namespace) -> Path:
    """Return the folder of `--store`, in which something is written, or the current one.

    Raises:
        UsageError: the name is empty or that of a file.
    """
    folder = store_folder(options)
    if folder is None:
        return Path()
    from steptime.core.store import store_in

    for path in (Path(folder), store_in(Path(folder))):
        if os.path.lexists(path) and not os.path.isdir(path):
            raise UsageError(
                f"--store: `{path}` is not a folder.",
                hint="Name a folder; the store is made in it.",
            )
    return Path(folder)


def _refuse_negative(text: str, flag: str) -> None:
    if _NEGATIVE.match(text.strip()):
        raise UsageError(f"{flag} must not be negative, got `{text}`.")


def parse_percent(text: str, *, flag: str) -> float:
    """Return the fraction in `5%`.

    Raises:
        UsageError: the text is not a percentage.
    """
    found = _PERCENT.fullmatch(text.strip())
    if found is None:
        _refuse_negative(text, flag)
        raise UsageError(f"{flag} must be a percentage, got `{text}`.", hint=f"Write: {flag} 5%")
    return float(found[1]) / 100


def parse_price(text: str, *, flag: str) -> float:
    """Return the price of an hour in `2.5/h` or `2.5`.

    Raises:
        UsageError: the text is not a number above zero.
    """
    found = _PRICE.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        message = f"{flag} must be the price of an hour, a number above 0, got `{text}`."
        raise UsageError(message, hint=f"Write: {flag} 2.5/h")
    return float(found[1])


def parse_time(text: str, *, flag: str = "--budget") -> float:
    """Return the seconds in `30s`, `10m`, `1h`.

    Raises:
        UsageError: the text is not a time above zero.
    """
    found = _TIME.fullmatch(text)
    value_s = float(found[1]) * _UNITS_S[found[2]] if found else 0.0
    if value_s <= 0:
        _refuse_negative(text, flag)
        raise UsageError(f"{flag} must be a time such as 30s, 10m or 1h, got `{text}`.")
    return value_s


def parse_size(text: str, *, flag: str) -> int:
    """Return the bytes in `8GiB`, `900MiB` or `80GB`.

    Raises:
        UsageError: the text is not a size above zero.
    """
    found = _SIZE.fullmatch(text.strip())
    size = round(float(found[1]) * _SIZE_UNITS[found[2]]) if found else 0
    if size <= 0:
        _refuse_negative(text, flag)
        raise UsageError(f"{flag} must be a size such as 8GiB, 900MiB or 80GB, got `{text}`.")
    return size


def add_allow(search: argparse._ArgumentGroup) -> None:
    """Add `--allow training-changes`: no lever that changes the training is named without it."""
    search.add_argument(
        "--allow",
        metavar="WHAT",
        choices=("training-changes",),
        help="training-changes: also name levers that change training",
    )


def parse_names(text: str) -> tuple[str, ...]:
    """Return the names in `a,b`."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
