"""Documents of `--json` held against their schema, which is made from the values."""

from __future__ import annotations

import copy
import json
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from steptime.core.codec import render
from steptime.report.document.envelope import Envelope
from steptime.report.document.json_schema import json_schema


def check_document(envelope: Envelope[Any], name: str) -> dict[str, Any]:
    """The document as a program reads it: it fits the schema, and has no key beside it."""
    document: dict[str, Any] = json.loads(render(envelope))
    check_fits(document, name)
    return document


def check_fits(document: dict[str, Any], name: str) -> None:
    for validator in _validators(name):
        validator.validate(document)


@cache
def _validators(name: str) -> tuple[Draft202012Validator, ...]:
    schema = json_schema(name)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema), Draft202012Validator(_closed(schema))


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with no key allowed but those it describes."""
    schema = copy.deepcopy(schema)
    for part in (schema, *schema["$defs"].values()):
        if "properties" in part:
            part["additionalProperties"] = False
    return schema
