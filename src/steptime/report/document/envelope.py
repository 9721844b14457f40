"""The one document that programs read: an envelope around the value that a command answers with.

In: a frozen value, or an error. Out: text of exactly one JSON document. `json_schema` describes it,
and docs/how-to/use-in-a-program.md explains it. Other modules decide what to measure, and
where the text goes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from steptime.core.schema import DOCUMENT_SCHEMA
from steptime.errors import SteptimeError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Status(str, Enum):
    """Whether there is an answer: all of it (`ok`), some of it (`partial`), or none (`error`)."""

    OK = "ok"
    PARTIAL = "partial"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorItem:
    """One thing that went wrong.

    Attributes:
        code: a stable word, for programs to branch on.
        message: what happened, for people.
        hint: what to do next, for people.
    """

    code: str
    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope(Generic[T_co]):
    """The result of one command, whatever happened.

    Attributes:
        schema: the version of the document. New keys may appear within a version; no key
            goes away or changes its type, its unit or its meaning.
        command: the verb.
        status: `ok`; `partial`, where there are errors and data; `error`, where there is no data.
        exit_code: what the process ends with.
        data: the result.
        errors: what went wrong; empty where the status is `ok`.
    """

    command: str
    status: Status
    exit_code: int
    data: T_co | None
    errors: tuple[ErrorItem, ...]
    schema: int = DOCUMENT_SCHEMA


def enclose(
    command: str, data: T | None, *, exit_code: int = 0, errors: tuple[ErrorItem, ...] = ()
) -> Envelope[T]:
    """Return the envelope of a command's answer, with the status that follows from it."""
    status = Status.OK
    if errors:
        status = Status.ERROR if data is None else Status.PARTIAL
    return Envelope(command=command, status=status, exit_code=exit_code, data=data, errors=errors)


def error_envelope(command: str, error: SteptimeError) -> Envelope[None]:
    """Return the envelope of a command that ended in `error` and has no data."""
    item = ErrorItem(code=error.code, message=str(error), hint=error.hint)
    return enclose(command, None, exit_code=error.exit_code, errors=(item,))
