"""The parser of our own words: of a command, and of one that consists of commands."""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Any, ClassVar, NoReturn

from steptime.cli.option_table import add_table
from steptime.errors import UsageError

NEGATIVE = re.compile(r"-\.?\d")
"""How a value begins that is below zero."""


_IN_WORDS = (
    (re.compile(r": invalid int value: '(.*)'"), r" must be a whole number, got `\1`"),
    (re.compile(r": invalid float value: '(.*)'"), r" must be a number, got `\1`"),
    (re.compile(r": invalid choice: '(.*)' \(choose from (.*)\)"), r" must be one of \2; got `\1`"),
    (re.compile(r": expected (one|at least one) argument"), " needs a value"),
    (re.compile(r"the following arguments are required: "), "this is missing: "),
)
"""What argparse says, and what a person reads instead."""


class Parser(argparse.ArgumentParser):
    """Raises instead of exiting; `commands` are the parsers by name of what it consists of."""

    commands: Mapping[str, Parser] = MappingProxyType({})
    is_strict: ClassVar[bool] = True
    """Whether words are refused; those of a line that is completed are not whole yet."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and where the help is."""
        message = f"{message.removeprefix('argument ')}."
        for theirs, ours in _IN_WORDS:
            message = theirs.sub(ours, message)
        if " must be one of " in message:
            message = message.replace("'", "")  # newer Pythons quote no choice
        raise UsageError(message, hint=f"See `{self.prog} --help`.")

    def _refuse_unknown(self, word: str, message: str, known: Mapping[str, str]) -> NoReturn:
        from difflib import get_close_matches

        near = get_close_matches(word, known, n=1)
        meant = f"Did you mean `{known[near[0]]}`? " if near else ""
        raise UsageError(message, hint=f"{meant}See `{self.prog} --help`.")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse words; what is not known is refused here, where the nearest is known."""
        words = self._joined(list(sys.argv[1:] if args is None else args))
        if not self.is_strict:
            return super().parse_known_args(words, namespace)
        if self.commands and not words:
            self.print_help(sys.stderr)
            self.exit(UsageError.exit_code)
        names = [word for word in words if self.commands and not word.startswith("-")]
        command = names[0] if names else None
        if command is not None and command not in self.commands:
            known = {name: f"{self.prog} {name}" for name in self.commands}
            for name, group in self.commands.items():
                known |= {part: f"{self.prog} {name} {part}" for part in group.commands}
            self._refuse_unknown(command, f"there is no command `{self.prog} {command}`.", known)
        for word in itertools.takewhile(lambda one: one not in (command, "--"), words):
            self._check_option(word, words)
        found, unknown = super().parse_known_args(words, namespace)
        if unknown:
            self.error(f"`{unknown[0]}` is one word too many")
        return found, []

    def _check_option(self, word: str, words: Sequence[str]) -> None:
        """Refuse an option that is not known; argparse would miss what is required before."""
        name = word.partition("=")[0]
        is_value = word[:1] != "-" or word == "-" or " " in word or NEGATIVE.match(word)
        if is_value or {name, word[:2]} & self._option_string_actions.keys():
            return
        known = {given.strip("-"): given for given in self._option_string_actions}
        message = f"there is no option `{name}`."
        place = self.command_at(words, takes_optional=True)
        if place is not None and "-- COMMAND" in (self.usage or "") and word in words[place:]:
            message += " If it is the command's own: that comes after `--`."
        self._refuse_unknown(name.strip("-"), message, known)

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
            name, has_value, _ = words[place].partition("=")
            option = self._option_string_actions.get(name)
            place += 1
            if option is None:
                break
            if has_value:
                continue
            following = itertools.takewhile(lambda word: not word.startswith("-"), words[place:])
            if option.nargs == "+":
                place += len(list(following))
            elif option.nargs is None or (option.nargs == "?" and takes_optional):
                place += option.nargs is None or next(following, None) is not None
        return place if place < len(words) else None

    def knows(self, words: Sequence[str]) -> bool:
        """Tell whether every word that looks like an option is one."""
        names = [word.partition("=")[0] for word in words if word.startswith("--")]
        return self._option_string_actions.keys() >= set(names)

    def takes_optional(self, word: str) -> bool:
        """Tell whether a word is an option whose value may be left out."""
        option = self._option_string_actions.get(word)
        return option is not None and option.nargs == "?"

    def _joined(self, words: list[str]) -> list[str]:
        """Return the words, each negative value with its option: argparse would see two options."""
        joined: list[str] = []
        for word in words:
            option = self._option_string_actions.get(joined[-1]) if joined else None
            if option is not None and option.nargs is None and NEGATIVE.match(word):
                joined[-1] += f"={word}"
            else:
                joined.append(word)
        return joined


def add_command(commands: Any, name: str, module: ModuleType) -> Parser:
    """Add a command that a module describes: SUMMARY, DESCRIPTION, USAGE, OPTIONS, EXAMPLES."""
    command: Parser = commands.add_parser(
        name,
        help=module.SUMMARY,
        description=module.DESCRIPTION,
        usage=module.USAGE,
        epilog=module.EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_table(command, getattr(module, "OPTIONS", ""))
    for switch in (("-v", "--verbose"), ("-q", "--quiet"), ("--no-color",)):
        command.add_argument(*switch, action="store_true", help=argparse.SUPPRESS)
    if hasattr(module, "PARTS"):
        _add_parts(command, name, module.PARTS)
    command.set_defaults(parser=command, execute=getattr(module, "execute", None))
    return command


def _add_parts(parser: Parser, verb: str, names: Sequence[str]) -> None:
    """Add the commands of a verb: `NAME` is `cli/VERB/VERB_NAME.py`, with what a command has."""
    parts = parser.add_subparsers(
        title="commands", metavar="COMMAND --help", prog=f"steptime {verb}"
    )
    parser.commands = parts.choices
    for name in names:
        add_command(parts, name, import_module(f"steptime.cli.{verb}.{verb}_{name}"))
