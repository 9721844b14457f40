"""Probes a predictor: changes its inputs and judges, row by row, how its predictions react.

In: inputs, the probes that are asked for, and a way to ask the predictor. Out: a `ProbeReport`.
Everything that is to be predicted is asked for at once, so that a model is loaded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from steptime.errors import UsageError
from steptime.verify.model.changes.column_changes import (
    OF_NUMBERS,
    OF_TEXT,
    PARTIAL,
    Changer,
    Dosed,
    is_text,
)
from steptime.verify.model.changes.picture_changes import OF_PICTURES
from steptime.verify.model.probe_judging import (
    Reactions,
    judge_doses,
    judge_rows,
    predictions_of,
)
from steptime.verify.values import Outcome
from steptime.verify.values.probe_asked import (
    COMPLIANCE,
    DIRECTION,
    FRESH,
    INVARIANCE,
    PERTURBATION,
    ProbeAsked,
)
from steptime.verify.values.probe_results import ProbeReport, ProbeResult

SEED = 20_260_101
"""Of every chance in a probe: the same inputs give the same verdict."""

_FRACTIONS = (0.1, 0.25, 0.5)
_DOSES: Mapping[str, tuple[float, ...]] = {"noise": (0.1, 0.3, 1.0)}
_SIZES: Mapping[str, float] = {"jitter": 0.01, "noise": 0.1, "corrupt": 0.1, "drop": 0.1}
"""Of the standard deviation, or of the values; within what a measurement errs."""

_LEAST_CHANGED = 0.99
"""Of the rows that a probe claims to change: below it, the probe did nothing."""

_FRESH = frozenset({"case", "typo", "jitter"} | set(OF_PICTURES) - {"noise", "corrupt"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeInputs:
    """The rows on which a predictor is probed.

    Attributes:
        columns: by name, an array (num_rows, ...); `x` alone where the inputs are one array.
        is_array: whether the predictor gets `x` itself, not a dict of columns.
        labels: the true label of each row (num_rows,); None where there are none.
        rows: the id of each row.
    """

    columns: Mapping[str, Any]
    is_array: bool = False
    labels: Any = None
    rows: Sequence[str] = ()

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len(next(iter(self.columns.values())))


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictRequest:
    """One prediction of all rows.

    Attributes:
        columns: those that are changed; empty for the inputs as they are.
        change: a function of the user's that changes them, by its name.
        dose: what that function gets beside them.
        check: a function of the user's that says of inputs and predictions which rows comply.
    """

    columns: Mapping[str, Any]
    change: str | None = None
    dose: float | None = None
    check: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowAnswers:
    """The predictions (num_rows, ...); inputs that a user's function made; rows that comply."""

    predictions: Any
    columns: Mapping[str, Any] | None = None
    complies: Any = None


Ask = Callable[[Sequence[PredictRequest]], Sequence[RowAnswers]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """A probe with its change, the doses of that, and a request for each of them."""

    asked: ProbeAsked
    change: str | None
    doses: tuple[float | None, ...]
    requests: tuple[PredictRequest, ...]


def run_probes(
    inputs: ProbeInputs, asked: Sequence[ProbeAsked], ask: Ask, reference: Ask | None = None
) -> ProbeReport:
    """Return what each probe finds.

    Args:
        inputs: the rows.
        asked: the probes.
        ask: the candidate's predictor.
        reference: the reference's, for perturbations.

    Raises:
        UsageError: a probe does not suit its column, or changes too few rows (`ProbeDidNothing`).
        DataError: a prediction is no finite number.
    """
    planned = [_plan(inputs, probe, number) for number, probe in enumerate(asked)]
    requests = [PredictRequest(columns={})] * 2
    requests += [request for one in planned for request in one.requests]
    answers = list(ask(requests))
    mine = [predictions_of(one.predictions, inputs.num_rows) for one in answers]
    theirs = []
    if reference is not None:
        theirs = [predictions_of(one.predictions, inputs.num_rows) for one in reference(requests)]
    is_constant = bool((mine[0] == mine[0][:1]).all())
    has_direction = any(one.kind == DIRECTION for one in asked)
    results, at = list[ProbeResult](), 2
    for one in planned:
        part = slice(at, at + len(one.requests))
        at = part.stop
        seen = Reactions(mine[0], mine[1], mine[part])
        others = Reactions(theirs[0], theirs[1], theirs[part]) if theirs else None
        found = _judge(one, inputs, seen, others, answers[part])
        results.append(_guarded(found, is_constant=is_constant, has_direction=has_direction))
    return ProbeReport(
        num_rows=inputs.num_rows,
        is_random=not np.array_equal(mine[0], mine[1]),
        is_constant=is_constant,
        results=tuple(results),
    )


def _plan(inputs: ProbeInputs, asked: ProbeAsked, number: int) -> _Planned:
    """Return the requests of a probe."""
    if asked.kind == COMPLIANCE:
        request = PredictRequest(columns={}, check=asked.check)
        return _Planned(asked=asked, change=None, doses=(None,), requests=(request,))
    change = _draw(inputs, asked, number) if asked.kind == FRESH else str(asked.change)
    doses: tuple[float | None, ...] = (asked.size,)
    if asked.kind == PERTURBATION:
        doses = asked.doses or _DOSES.get(change, _FRACTIONS)
    elif ":" not in change and asked.size is None:
        doses = (_SIZES.get(change, 1.0),)
    requests = tuple(
        PredictRequest(columns={}, change=change, dose=dose)
        if ":" in change
        else PredictRequest(columns=_changed(inputs, asked, change, dose or 0.0, (SEED, number, i)))
        for i, dose in enumerate(doses)
    )
    return _Planned(asked=asked, change=change, doses=doses, requests=requests)


def _draw(inputs: ProbeInputs, asked: ProbeAsked, number: int) -> str:
    """Draw an augmentation that the training did not use."""
    known = [name for name in _changers(_column(inputs, asked)[1]) if name in _FRESH]
    left = [name for name in known if name not in asked.trained]
    if not left:
        raise UsageError(
            f"the training used every augmentation that suits these inputs: {', '.join(known)}.",
            hint="Name a change of your own in a probe of kind invariance: change=FILE.py:FUNCTION",
        )
    return left[int(np.random.default_rng((SEED, number)).integers(len(left)))]


def _changers(values: Any) -> Mapping[str, Changer]:
    return OF_PICTURES if values.ndim >= 3 else OF_TEXT if is_text(values) else OF_NUMBERS


def _column(inputs: ProbeInputs, asked: ProbeAsked) -> tuple[str, Any]:
    """Return the name and the values that a probe changes."""
    name = asked.column
    if inputs.is_array:
        values = inputs.columns["x"]
        if name is None:
            return "x", values
        if values.ndim == 2 and name in map(str, range(values.shape[1])):
            return "x", values[:, int(name)]
        raise UsageError(
            f"the array of shape {values.shape} has no column `{name}`.",
            hint="`column` is the number of a feature of an array (rows, features), from 0.",
        )
    if name is None:
        raise UsageError(f"the probe `{asked.name}` needs the key `column`.")
    if name not in inputs.columns:
        known = ", ".join(f"`{one}`" for one in inputs.columns)
        raise UsageError(f"the inputs have no column `{name}`; they have {known}.")
    return name, inputs.columns[name]


def _changed(
    inputs: ProbeInputs, asked: ProbeAsked, change: str, dose: float, seed: tuple[int, ...]
) -> dict[str, Any]:
    """Return the column that is changed."""
    name, values = _column(inputs, asked)
    known = _changers(values)
    if change not in known or (values.ndim == 2 and change not in ("noise", "jitter", "corrupt")):
        what = "pictures" if values.ndim >= 3 else "text" if is_text(values) else "numbers"
        raise UsageError(
            f"there is no change `{change}` of {what} of shape {values.shape}.",
            hint=f"Name one of {', '.join(known)}, or a function of yours: FILE.py:FUNCTION",
        )
    how = Dosed(dose=dose, value=asked.value, random=np.random.default_rng(seed))
    changed = known[change](values, how)
    if inputs.is_array and asked.column is not None:
        whole = inputs.columns["x"].astype(np.result_type(values, changed))
        whole[:, int(asked.column)] = changed
        changed = whole
    return {name: changed}


def _changed_rows(before: Mapping[str, Any], after: Mapping[str, Any]) -> Any:
    """Return which rows (num_rows,) differ in some column."""
    num = len(next(iter(before.values())))
    found = np.zeros(num, dtype=bool)
    for name, new in after.items():
        old = before.get(name)
        if old is None or new.shape != old.shape:
            return np.ones(num, dtype=bool)
        is_other = new != old
        if old.dtype.kind == "f" and new.dtype.kind == "f":
            is_other &= ~(np.isnan(old) & np.isnan(new))
        found |= is_other.reshape(num, -1).any(axis=1)
    return found


def _has_value(values: Any) -> Any:
    """Return which rows (num_rows,) have something that can be changed."""
    has = values != "" if is_text(values) else values == values  # NaN is not itself
    return has.reshape(len(values), -1).any(axis=1)


def _judge(
    one: _Planned,
    inputs: ProbeInputs,
    seen: Reactions,
    others: Reactions | None,
    answers: Sequence[RowAnswers],
) -> ProbeResult:
    asked, num = one.asked, inputs.num_rows
    if asked.kind == COMPLIANCE:
        complies = np.asarray(answers[0].complies)
        if complies.shape != (num,):
            raise UsageError(
                f"`{asked.check}` returned the shape {complies.shape}; expected a yes or no for "
                f"each of the {num:,} rows."
            )
        every = np.ones(num, dtype=bool)
        return judge_rows(asked, seen, every, inputs.rows, breaks=~complies.astype(bool))
    made = [
        request.columns or answer.columns or {}
        for request, answer in zip(one.requests, answers, strict=True)
    ]
    changed = [_changed_rows(inputs.columns, columns) for columns in made]
    claimed = num if ":" in str(one.change) else int(_has_value(_column(inputs, asked)[1]).sum())
    least = 1 if one.change in PARTIAL else _LEAST_CHANGED * claimed
    for rows in changed:
        if not rows.sum() >= max(least, 1):
            raise UsageError(
                f"ProbeDidNothing: `{asked.name}` changed {rows.sum():,} of the {claimed:,} rows "
                f"that it should change by `{one.change}`.",
                hint="What changes nothing proves nothing: choose another change, column or size.",
            )
    if asked.kind == PERTURBATION:
        found = judge_doses(asked, seen, others, [dose or 0.0 for dose in one.doses], inputs.labels)
    else:
        found = judge_rows(asked, seen, changed[0], inputs.rows)
    return replace(found, change=one.change)


def _guarded(one: ProbeResult, *, is_constant: bool, has_direction: bool) -> ProbeResult:
    """Take back a PASS that a predictor gets which looks at nothing."""
    if one.outcome is not Outcome.PASS or one.kind == COMPLIANCE:
        return one
    if is_constant:
        return replace(one, outcome=Outcome.INCONCLUSIVE, reason="constant_predictor")
    if one.kind == INVARIANCE and not has_direction:
        return replace(one, outcome=Outcome.INCONCLUSIVE, reason="no_direction_probe")
    return one
