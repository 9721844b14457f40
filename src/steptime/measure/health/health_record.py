"""Reads the lines on layers that go bad, weights that learn nothing, and graphs that are kept."""

from __future__ import annotations

from dataclasses import dataclass

from steptime.core.codec import from_json
from steptime.measure.values.model.layer_health import Bracket, LayerHealth
from steptime.measure.values.model.training_health import KeptGraphs, WeightUse
from steptime.record import rows
from steptime.record.lines import Line
from steptime.record.places import NS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Graphs:
    n: int
    marked: tuple[int, ...]
    is_kept: bool


def read_look(line: Line) -> LayerHealth:
    """Return what a probe saw and took so far; the last line of a rank counts."""
    num_updates = rows.whole_number(line, "updates")
    own = {
        "num_updates": num_updates,
        "tensors_per_update": rows.whole_number(line, "tensors") / max(1, num_updates),
        "s_per_update": rows.whole_number(line, "ns") * NS / max(1, num_updates),
    }
    return from_json(LayerHealth, {**line, **own})


def read_bracket(line: Line) -> Bracket:
    """Return a bracket as the guest wrote it; it knows neither its rank nor its samples."""
    own = {"update": line.get("n"), "rank": 0, "skipped": bool(line.get("skipped"))}
    return from_json(Bracket, {**line, **own})


def read_weights(line: Line) -> WeightUse:
    """Return which weights learned nothing so far."""
    own = {
        "update": line.get("n"),
        "without_gradient": line.get("none"),
        "zero_gradient": line.get("zero"),
        "unused_gradient": line.get("unused"),
        "unregistered": line.get("loose"),
        "embeddings": line.get("tables", ()),
    }
    return from_json(WeightUse, {**line, **own})


def read_graphs(line: Line) -> KeptGraphs:
    """Return whether marked graphs are alive; the line counts updates that had ended.

    Raises:
        ValueError: no graph was marked.
    """
    told = from_json(_Graphs, line)
    if not told.marked:
        raise ValueError("`marked` must not be empty")
    return KeptGraphs(
        update=told.n,
        first_marked=min(told.marked) + 1,
        last_marked=max(told.marked) + 1,
        are_kept=told.is_kept,
    )
