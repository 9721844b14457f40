"""Hides keys, tokens and passwords among the words of a command, before the words are kept.

A word is hidden if its option or variable has the name of a secret (`--api-key X`, `TOKEN=X`), or
if it looks like a key of a service, or for the password in a URL. What is hidden reads `***`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

HIDDEN = "***"

_NAME = re.compile(
    r"(?:^|[-_.])(?:(?:api|access|secret|private|auth|account|wandb|hf)[-_.]?key|token|secret"
    r"|passw(?:or)?d|passphrase|credentials?)$",
    re.IGNORECASE,
)
_KEY = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[\w-]{20,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}|xox[abprs]-[\w-]{10,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)"
)
_PASSWORD = re.compile(r"(\w://[^/\s:@]*:)[^\s@]+@")
_NO_SECRET = re.compile(r"-?[\d.e+-]*|true|false|none|null", re.IGNORECASE)


def hide_words(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command with `***` for what looks like a secret."""
    found: list[str] = []
    is_secret = False
    for word in words:
        found.append(HIDDEN if is_secret and _may_be_secret(word) else _hide(word))
        name, sign, _ = word.partition("=")
        is_secret = not sign and name.startswith("-") and _NAME.search(name) is not None
    return tuple(found)


def _hide(word: str) -> str:
    name, sign, value = word.partition("=")
    if sign and _NAME.search(name) and _may_be_secret(value):
        return f"{name}={HIDDEN}"
    return _PASSWORD.sub(rf"\1{HIDDEN}@", _KEY.sub(HIDDEN, word))


def _may_be_secret(value: str) -> bool:
    return not value.startswith("--") and _NO_SECRET.fullmatch(value) is None
