"""The document of `steptime compare`, as docs/reference/json.md explains it.

In: a Comparison. Out: an Envelope. Numbers that are not known are null, never zero.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from steptime.compare.values import ComparedRun, Comparison, Effect
from steptime.report.document.envelope import Envelope, ErrorItem
from steptime.report.text.compare_text import ComparisonRequest
from steptime.report.words.compare_words import describe_gate, describe_obstacle, describe_reason


def comparison_envelope(found: Comparison, *, asked: ComparisonRequest, exit_code: int) -> Envelope:
    """The envelope; what keeps the command from ending with 0 is among the errors."""
    return Envelope(
        command="compare",
        exit_code=exit_code,
        data=comparison_data(found, asked=asked),
        errors=_errors(found, asked, exit_code),
    )


def _errors(found: Comparison, asked: ComparisonRequest, exit_code: int) -> tuple[ErrorItem, ...]:
    if exit_code == 0:
        return ()
    stopping = [o for o in found.obstacles if o.code == "failed" or exit_code == 2]
    if exit_code in (2, 3) and stopping:
        code = "not_comparable" if exit_code == 2 else "script_failed"
        return tuple(ErrorItem(code=code, message=describe_obstacle(o)) for o in stopping)
    if exit_code == 5:
        code = "gate_not_met"
    else:
        code = "too_noisy"
    message = describe_gate(found, is_forced=asked.is_forced) or describe_reason(found.reason or "")
    return (ErrorItem(code=code, message=message),)


def comparison_data(found: Comparison, *, asked: ComparisonRequest) -> dict[str, Any]:
    """The `data`: every key is always there."""
    gate = found.gate
    return {
        "outcome": found.outcome.value,
        "reason": found.reason,
        "a": [_run(run) for run in found.a],
        "b": [_run(run) for run in found.b],
        "step": _effect(found.step),
        "phases": {effect.name: _effect(effect) for effect in found.phases},
        "spans": {effect.name: _effect(effect) for effect in found.spans},
        "finish": _effect(found.finish),
        "num_steps": found.num_steps,
        "cost": _cost(found.finish, asked.price),
        "spread": None if found.spread is None else asdict(found.spread),
        "needed_runs": found.needed_runs,
        "changes": [
            {"what": c.what, "name": c.name, "a": list(c.a), "b": list(c.b)} for c in found.changes
        ],
        "obstacles": [asdict(obstacle) for obstacle in found.obstacles],
        "remarks": [asdict(remark) for remark in found.remarks],
        "gate": None if gate is None else {"limit": gate.limit, "outcome": gate.outcome.value},
    }


def _run(run: ComparedRun) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "place": run.place,
        "started_unix_s": run.started_unix_s,
        "duration_s": run.duration_s,
        "state": run.end.state.value,
        "num_steps": run.num_steps,
        "num_counted": run.num_counted,
        "step_s": run.step_s,
    }


def _effect(effect: Effect | None) -> dict[str, Any] | None:
    if effect is None:
        return None
    fields = asdict(effect)
    return {key: fields[key] for key in fields if key != "name"}


def _cost(finish: Effect | None, price: float | None) -> dict[str, Any] | None:
    """What a whole run costs at `price` an hour."""
    if finish is None or price is None:
        return None
    rate = price / 3600
    difference = {
        name: None if value is None else value * rate
        for name, value in asdict(finish.difference_s).items()
    }
    return {
        "price_per_hour": price,
        "a": finish.a_s * rate,
        "b": finish.b_s * rate,
        "difference": difference,
    }
