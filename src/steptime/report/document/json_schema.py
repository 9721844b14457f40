"""Makes the JSON Schema of every document from the values themselves.

In: the name of a document. Out: a schema of the draft 2020-12. msgspec makes it from the
annotations; the words come from the values' docstrings. The schema is made when it is asked for
and is not stored, so it always describes the Steptime that is installed.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from steptime.core.schema import DOCUMENT_SCHEMA
from steptime.data.values.conversion_values import ConversionAnswer
from steptime.quantize.values.quantized_model import QuantizedModel
from steptime.report.blocks.run.answer_report import RunAnswer
from steptime.report.document.comparison_document import ComparisonDocument
from steptime.report.document.data_documents import DataCheckDocument, LoaderDocument
from steptime.report.document.envelope import Envelope
from steptime.report.document.listings import (
    ExportDocument,
    LeversDocument,
    ListDocument,
    PageDocument,
    RemovedDocument,
)
from steptime.report.document.machine_documents import CheckDocument, MachineDocument
from steptime.report.document.plan_documents import BatchDocument, ShapesDocument
from steptime.report.document.run_document import RunDocument
from steptime.report.document.study_documents import HandoverDocument, StudyDocument
from steptime.seek.values.seek_values import SeekAnswer
from steptime.tune.values.fit_values import FitStudy
from steptime.verify.values.model_verdict import ModelVerdict
from steptime.verify.values.release_verdict import ReleaseVerdict
from steptime.verify.values.seed_runs import PowerPlan, TrainingVerdict

DOCUMENTS: Mapping[str, Any] = {
    "run": Envelope[RunDocument],
    "tune": Envelope[StudyDocument],
    "fit": Envelope[FitStudy],
    "patch": Envelope[HandoverDocument],
    "list": Envelope[ListDocument],
    "show run": Envelope[RunDocument],
    "show study": Envelope[StudyDocument],
    "show fit": Envelope[FitStudy],
    "attach": Envelope[RunAnswer],
    "report": Envelope[PageDocument],
    "rm": Envelope[RemovedDocument],
    "prune": Envelope[RemovedDocument],
    "compare": Envelope[ComparisonDocument],
    "export": Envelope[ExportDocument],
    "levers": Envelope[LeversDocument],
    "machine": Envelope[MachineDocument],
    "doctor": Envelope[CheckDocument],
    "plan shapes": Envelope[ShapesDocument],
    "plan batch": Envelope[BatchDocument],
    "data bench": Envelope[LoaderDocument],
    "data check": Envelope[DataCheckDocument],
    "data convert": Envelope[ConversionAnswer],
    "verify model": Envelope[ModelVerdict],
    "verify release": Envelope[ReleaseVerdict],
    "verify training": Envelope[TrainingVerdict],
    "verify power": Envelope[PowerPlan],
    "sweep": Envelope[SeekAnswer],
    "quantize": Envelope[QuantizedModel],
}
"""Maps what is typed to the document that it writes; `show` writes that of what it shows."""


def name_of(document: Any) -> str:
    """Return the class of an envelope's data."""
    (cls,) = document.__args__
    return str(cls.__name__)


def json_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of one of the `DOCUMENTS`.

    Raises:
        ValueError: there is no document of that name.
    """
    import msgspec

    if name not in DOCUMENTS:
        raise ValueError(f"`name` must be one of {', '.join(DOCUMENTS)}, got {name!r}")
    _, parts = msgspec.json.schema_components([DOCUMENTS[name]], ref_template="#/$defs/{name}")
    parts = {_title(key): _described(part) for key, part in parts.items()}
    schema = parts.pop("Envelope")
    schema["properties"]["schema"]["const"] = DOCUMENT_SCHEMA
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": f"Steptime: {name}",
        # What the status says about the other keys.
        "oneOf": [_status("ok", 0, 0), _status("partial", 1), _status("error", 1)],
        "$defs": parts,
    }


def _status(word: str, least: int, most: int | None = None) -> dict[str, Any]:
    """Return what holds under one status: how many errors there are, and whether there is data."""
    errors = {"minItems": least} if most is None else {"minItems": least, "maxItems": most}
    data = {"type": "null"} if word == "error" else {"not": {"type": "null"}}
    return {"properties": {"status": {"const": word}, "errors": errors, "data": data}}


def _title(key: str) -> str:
    """Return `Envelope` for the name that msgspec gives an envelope of something."""
    return key.partition("_")[0]


def _described(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part with the words of its docstring; each key is always written, even a default."""
    intro, words = take_apart(part.get("description", ""))
    part = {"title": _title(part["title"].partition("[")[0]), **part, "description": intro}
    keys = part.get("properties")
    if keys is None:
        return part
    for name, key in keys.items():
        key.pop("default", None)
        if name in words:
            key["description"] = words[name]
    return {**part, "required": list(keys)}


@cache
def take_apart(text: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into its sentences and the words of each attribute."""
    intro, _, section = inspect.cleandoc(text).partition("\n\nAttributes:\n")
    words: dict[str, str] = {}
    for entry in re.split(r"\n(?=    \S)", "\n" + section):
        names, _, meaning = entry.partition(":")
        for name in names.split(","):
            if meaning:
                words[name.strip()] = _as_json(meaning)
    return _as_json(intro), words


def _as_json(text: str) -> str:
    """Return the text in one line, in the words of JSON."""
    return re.sub(r"\bNone\b", "null", " ".join(text.split()))
