"""Keys and secrets never reach a message: a URL, an option, what a store's library says."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from steptime.record.hidden_words import HIDDEN

MIN_SECRET = 4
"""Characters; what is shorter stands in ordinary words."""

_SECRET_NAME = re.compile(
    r"key|secret|token|passw|credential|connection_string|signature|auth|\bsas\b|user",
    re.IGNORECASE,
)
_SECRET_VARIABLE = re.compile(
    r"^(AWS|AZURE|GOOGLE|GCS|FSSPEC|HF)_.*(KEY|SECRET|TOKEN|PASS|CREDENTIAL|SAS|CONNECTION)"
)
# A password may have slashes that nobody wrote as %2F.
_USER = re.compile(r"(\w://)(?:[^/\s@]+|[^/\s@:]*:[^\s@]+)@")
_QUERY = re.compile(r"\?[^\s'\"<>]*[=&][^\s'\"<>]*")
_HEADER = re.compile(r"(?i)((?:authorization|x-amz-security-token)['\"]?\s*[:=]\s*)[^\n]+")


def secrets_in(options: Mapping[str, object]) -> Iterator[str]:
    """Yield the values of options whose names are those of secrets, however deep they lie."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from secrets_in(value)
        elif isinstance(value, str) and len(value) >= MIN_SECRET and _SECRET_NAME.search(name):
            yield value


def has_user(url: str) -> bool:
    """Whether a URL has a user, or a password, in it."""
    return _USER.search(url) is not None


def hide_secrets(text: str, options: Mapping[str, object] | None = None) -> str:
    """Return the text without secrets.

    Args:
        text: a URL or a message; user and query of a URL are left out whatever they are.
        options: what a store was opened with. Secrets of the environment are hidden as well.
    """
    known = {value for name, value in os.environ.items() if _SECRET_VARIABLE.match(name)}
    known.update(secrets_in(options or {}))
    for secret in sorted(known, key=len, reverse=True):
        if len(secret) >= MIN_SECRET:
            text = text.replace(secret, HIDDEN)
    text = _USER.sub(rf"\1{HIDDEN}@", text)
    text = _HEADER.sub(rf"\1{HIDDEN}", text)
    return _QUERY.sub(f"?{HIDDEN}", text)
