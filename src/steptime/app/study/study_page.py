"""Writes the page of a study: from its folder to one HTML file.

In: a study, and the folder that holds its trials. Out: the path of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from steptime.app.stored.page_file import write_page_file
from steptime.app.study.study_listing import PAGE
from steptime.core.store import find_store, read_document
from steptime.core.version import installed_version
from steptime.errors import DamagedRunError, NotFoundError, StoreError
from steptime.levers import BROKEN, load
from steptime.record.hidden_words import hide_words
from steptime.record.regular_file import read_regular
from steptime.report.blocks.study.study_next import StudyRequest
from steptime.report.blocks.study.study_report import (
    StudyPageFacts,
    study_report,
)
from steptime.report.html.paint_html import paint_page
from steptime.report.words.study.study_words import describe_applied
from steptime.tune.recipe.recipe_file import RECIPE
from steptime.tune.trials.facts.tried_writes import read_levers
from steptime.tune.values.study_values import State, Study
from steptime.verify.loss_overlays import overlay_losses
from steptime.verify.recordings import read_recording
from steptime.verify.values import LossOverlay

MAX_JUDGED = 4
"""States whose losses are drawn: the recipe, and those that were refused last."""


def folder_of(study: Study, *, store: Path) -> Path | None:
    """Return the folder of a study, in a store or in that of last resort; None if it is gone."""
    for place in (store, None):
        with suppress(NotFoundError, StoreError):
            folder = find_store(place, kind="studies") / "studies" / study.study_id
            if folder.is_dir():
                return folder
    return None


def write_study_page(
    study: Study, folder: Path, *, target: Path | None = None, recipe: Path | None = None
) -> Path:
    """Write the page into the study's folder or to another file; return its path.

    `recipe` is where the user has it, if not in the study's folder alone.

    Raises:
        StoreError: the file cannot be written.
    """
    study = replace(study, command=hide_words(study.command))
    page = render_study_page(gather(study, folder, recipe))
    return write_page_file(page, folder / PAGE, target)


def render_study_page(facts: StudyPageFacts) -> str:
    """Return the whole page."""
    asked = StudyRequest(recipe=facts.recipe_file)
    report = study_report(facts.study, asked=asked, facts=facts)
    return paint_page(report, version=facts.version)


def gather(study: Study, folder: Path, recipe: Path | None = None) -> StudyPageFacts:
    """Return what the page of a study shows."""
    own = folder / RECIPE
    text: str | None = None
    with suppress(OSError, UnicodeDecodeError):
        text = read_regular(own).decode() if study.recipe else None
    file = recipe or (own if text is not None else None)
    return StudyPageFacts(
        study=study,
        losses=tuple(_judged_losses(study, folder)),
        recipe_file=None if file is None else str(file),
        recipe=text,
        edits=tuple(_edits(study)),
        version=installed_version(),
    )


def _edits(study: Study) -> Iterator[tuple[str, str]]:
    for applied in study.recipe:
        with suppress(*BROKEN):  # of a package that is gone, or of another version
            yield describe_applied(applied), load(applied.name).edit(applied.settings)


# -- losses


def _judged_losses(study: Study, folder: Path) -> Iterator[tuple[State, tuple[LossOverlay, ...]]]:
    """Yield the losses of states that were judged, the recipe's first, where they can be read."""
    judged = [t.state for t in study.trials if t.kind == "quality" and t.quality]
    others = [one for one in reversed(judged) if one != study.recipe]
    chosen = [*(one for one in judged if one == study.recipe), *others][:MAX_JUDGED]
    plans = _plans(folder) if chosen else {}
    for state in chosen:
        with suppress(OSError, ValueError, DamagedRunError):
            if overlays := _overlays(state, folder, plans):
                yield state, overlays


def _plans(folder: Path) -> Mapping[Path, Mapping[str, Any]]:
    """Return the plans of the trials that recorded their losses, in order."""
    plans = {path: read_document(path / "plan.json") for path in sorted(folder.glob("trials/*"))}
    return {path: plan for path, plan in plans.items() if isinstance(plan.get("quality"), dict)}


def _overlays(
    state: State, folder: Path, plans: Mapping[Path, Mapping[str, Any]]
) -> tuple[LossOverlay, ...]:
    own = [path for path, plan in plans.items() if _has_state(path, plan, state)]
    if not own:
        return ()
    num_updates = plans[own[-1]]["quality"].get("num_updates")
    baseline = read_recording(folder / f"quality/baseline-{num_updates}", has_tensors=False)
    return overlay_losses(baseline, read_recording(own[-1], has_tensors=False))


def _has_state(path: Path, plan: Mapping[str, Any], state: State) -> bool:
    """Return whether a trial had these levers; settings of the environment are not in its plan."""
    if read_levers(path) != frozenset(applied.name for applied in state):
        return False
    settings = {applied.name: dict(applied.settings) for applied in state}
    listed = plan.get("levers") or []
    return all(settings.get(one["name"]) == one["settings"] for one in listed)
