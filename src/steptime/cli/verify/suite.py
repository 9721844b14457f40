"""Reads a suite file: the options of a comparison that a team keeps in its repository."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from steptime.app.verify.toml_file import read_toml
from steptime.errors import UsageError

_FILES = frozenset(
    {"file", "reference", "candidate", "train", "inputs", "predict", "predict_reference"}
)
_APART = frozenset({"suite", "json", "output", "format", "words", "command"})


def take_suite(options: argparse.Namespace, path: str) -> None:
    """Set each option of a suite that the command line does not give; its probes come first.

    Raises:
        NotFoundError: the file is not there.
        UsageError: it is no TOML, or a key is unknown or of the wrong kind.
    """
    document = read_toml(Path(path), hint="--suite names a file.")
    known = {name for name in vars(options) if name not in _APART and name[0] != "_"}
    options.probe = [*_probes(path, document.pop("probe", [])), *options.probe]
    for key, value in document.items():
        name = key.replace("-", "_")
        if name not in known:
            names = ", ".join(sorted(one.replace("_", "-") for one in known))
            raise UsageError(f"`{path}`: there is no key `{key}`.", hint=f"Keys are: {names}.")
        now = getattr(options, name)
        if now is None or now is False or now == []:  # a margin of 0 was given
            setattr(options, name, _fitting(path, key, value, now=now))
        if name in _FILES and getattr(options, name) == value:
            setattr(options, name, str(Path(path).parent / value))


def _probes(path: str, value: Any) -> list[Any]:
    """Return the probes of a suite, whose functions lie in files beside it."""
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise UsageError(f"`{path}`: `probe` is {value!r}; write each probe as [[probe]].")
    return [
        {
            key: str(Path(path).parent / part)
            if key in ("change", "check") and ":" in str(part)
            else part
            for key, part in one.items()
        }
        for one in value
    ]


_NUMBERS = frozenset({"margin", "slice-margin"})


def _fitting(path: str, key: str, value: Any, *, now: Any) -> Any:
    """Return a value as the command line gives it; `now` is what stands there without one."""
    name = key.replace("_", "-")
    if name == "share":
        return _shares(path, value)
    kind: tuple[type, ...] = (str,)
    wanted = "a text"
    if name in _NUMBERS:
        kind, wanted = (int, float), "a number"
    elif isinstance(now, bool):
        kind, wanted = (bool,), "true or false"
    elif isinstance(now, list):
        kind, wanted = (list,), "a list of texts"
    if not isinstance(value, kind) or (isinstance(value, bool) and bool not in kind):
        raise UsageError(f"`{path}`: `{key}` is {value!r}; it must be {wanted}.")
    if isinstance(value, list) and not all(isinstance(one, str) for one in value):
        raise UsageError(f"`{path}`: `{key}` is {value!r}; it must be {wanted}.")
    found: Any = float(value) if name in _NUMBERS else value  # type: ignore[arg-type]
    return found


def _shares(path: str, value: Any) -> list[str]:
    """Write the shares of each column as the words of `--share`."""
    if not isinstance(value, dict) or not all(isinstance(one, dict) for one in value.values()):
        raise UsageError(
            f"`{path}`: `share` is {value!r}; it must be a table for each column, such as "
            "`share.device = { phone = 0.7, desktop = 0.3 }`."
        )
    return [
        f"{column}=" + ",".join(f"{name}:{share}" for name, share in shares.items())
        for column, shares in value.items()
    ]
