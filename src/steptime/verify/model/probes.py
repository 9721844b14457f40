"""Probes a predictor: changes its inputs and judges, row by row, how its predictions react.

In: inputs, the probes that are asked for, and a way to ask the predictor. Out: a `ProbeReport`.
Everything that is to be predicted is asked for at once, so that a model is loaded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from steptime.errors import UsageError
from steptime.verify.model.changes.column_changes import OF_NUMBERS, OF_TEXT, Dosed, is_text
from steptime.verify.model.changes.picture_changes import OF_PICTURES
from steptime.verify.model.probe_judging import (
    Reaction,
    Reactions,
    judge_doses,
    judge_rows,
    reaction_of,
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

_DOSES: Mapping[str, tuple[float, ...]] = {"noise": (0.1, 0.3, 1.0), "drop": (0.1, 0.25, 0.5)}
_FRACTIONS = (0.1, 0.25, 0.5)
_SIZES: Mapping[str, float] = {"jitter": 0.01, "noise": 0.1, "corrupt": 0.1, "drop": 0.1}
"""Of the standard deviation, or of the values; within what a measurement errs."""

_LEAST_CHANGED = 0.99
"""Of the rows that a probe claims to change: below it, the probe did nothing."""

_FRESH_OF_TEXT, _FRESH_OF_NUMBERS = ("case", "typo"), ("jitter",)
_FRESH_OF_PICTURES = ("flip", "shift", "rotate", "reencode", "brightness")


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
        columns: the inputs; None for those that are not changed.
        change: a function of the user's that changes them, by its name.
        dose: what that function gets beside them.
        check: a function of the user's that says of inputs and predictions which rows comply.
    """

    columns: Mapping[str, Any] | None = None
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
    """A probe with its requests, and the rows (num_rows,) that each of them claims and changes."""

    asked: ProbeAsked
    change: str | None
    doses: tuple[float | None, ...]
    requests: tuple[PredictRequest, ...]
    claimed: tuple[Any, ...] = field(default=())
    changed: tuple[Any, ...] = field(default=())


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
    requests = [PredictRequest(), PredictRequest()]
    requests += [request for one in planned for request in one.requests]
    answers = list(ask(requests))
    others = None if reference is None else list(reference(requests))
    base = reaction_of(answers[0].predictions, inputs.num_rows)
    again = reaction_of(answers[1].predictions, inputs.num_rows)
    is_constant = bool((base.values == base.values[:1]).all())
    results, at = list[ProbeResult](), 2
    for one in planned:
        part = slice(at, at + len(one.requests))
        at = part.stop
        mine = Reactions(base, again, [_after(a, inputs) for a in answers[part]])
        theirs = None
        if others is not None and one.asked.kind == PERTURBATION:
            first = reaction_of(others[0].predictions, inputs.num_rows)
            theirs = Reactions(first, first, [_after(a, inputs) for a in others[part]])
        results.append(_judge(one, inputs, mine, theirs=theirs, answers=answers[part]))
    has_direction = any(one.kind == DIRECTION for one in asked)
    return ProbeReport(
        num_rows=inputs.num_rows,
        is_random=not base.equals(again),
        is_constant=is_constant,
        results=tuple(
            _guarded(one, is_constant=is_constant, has_direction=has_direction) for one in results
        ),
    )


def _after(answer: RowAnswers, inputs: ProbeInputs) -> Reaction:
    return reaction_of(answer.predictions, inputs.num_rows)


def _plan(inputs: ProbeInputs, asked: ProbeAsked, number: int) -> _Planned:
    """Return the requests of a probe."""
    if asked.kind == COMPLIANCE:
        request = PredictRequest(check=asked.check)
        return _Planned(asked=asked, change=None, doses=(None,), requests=(request,))
    change = asked.change
    if asked.kind == FRESH:
        change = _draw(inputs, asked, number)
    assert change is not None
    is_ours = ":" not in change
    doses: tuple[float | None, ...] = (asked.size,)
    if asked.kind == PERTURBATION:
        doses = asked.doses or _DOSES.get(change, _FRACTIONS)
    elif is_ours and asked.size is None:
        doses = (_SIZES.get(change, 1.0),)
    if not is_ours:
        requests = tuple(PredictRequest(change=change, dose=dose) for dose in doses)
        return _Planned(asked=asked, change=change, doses=doses, requests=requests)
    made = [
        _changed(inputs, asked, change, dose or 0.0, np.random.default_rng((SEED, number, i)))
        for i, dose in enumerate(doses)
    ]
    return _Planned(
        asked=asked,
        change=change,
        doses=doses,
        requests=tuple(PredictRequest(columns=columns) for columns, _ in made),
        claimed=tuple(claimed for _, claimed in made),
        changed=tuple(_changed_rows(inputs.columns, columns) for columns, _ in made),
    )


def _draw(inputs: ProbeInputs, asked: ProbeAsked, number: int) -> str:
    """Draw an augmentation that the training did not use."""
    values = _column(inputs, asked)[1]
    known: tuple[str, ...] = _FRESH_OF_TEXT if is_text(values) else _FRESH_OF_NUMBERS
    if values.ndim >= 3:
        known = _FRESH_OF_PICTURES
    left = [name for name in known if name not in asked.trained]
    if not left:
        raise UsageError(
            f"the training used every augmentation that suits these inputs: {', '.join(known)}.",
            hint="Name a change of your own in a probe of kind invariance: change=FILE.py:FUNCTION",
        )
    return left[int(np.random.default_rng((SEED, number)).integers(len(left)))]


def _column(inputs: ProbeInputs, asked: ProbeAsked) -> tuple[str, Any]:
    """Return the name and the values that a probe changes."""
    name = asked.column
    if not inputs.is_array:
        if name is None:
            raise UsageError(f"the probe `{asked.name}` needs the key `column`.")
        if name not in inputs.columns:
            known = ", ".join(f"`{one}`" for one in inputs.columns)
            raise UsageError(f"the inputs have no column `{name}`; they have {known}.")
        return name, inputs.columns[name]
    values = inputs.columns["x"]
    if name is None:
        return "x", values
    if values.ndim != 2 or not name.isascii() or not name.isdigit() or int(name) >= values.shape[1]:
        raise UsageError(
            f"the array of shape {values.shape} has no column `{name}`.",
            hint="`column` is the number of a feature of an array (rows, features), from 0.",
        )
    return "x", values[:, int(name)]


def _changed(
    inputs: ProbeInputs, asked: ProbeAsked, change: str, dose: float, random: np.random.Generator
) -> tuple[dict[str, Any], Any]:
    """Return the inputs with one column changed, and the rows that are claimed to be."""
    name, values = _column(inputs, asked)
    known = OF_PICTURES if values.ndim >= 3 else OF_TEXT if is_text(values) else OF_NUMBERS
    if change not in known:
        what = "pictures" if values.ndim >= 3 else "text" if is_text(values) else "numbers"
        raise UsageError(
            f"there is no change `{change}` of {what}.",
            hint=f"Name one of {', '.join(known)}, or a function of yours: FILE.py:FUNCTION",
        )
    if values.ndim == 2 and change not in ("noise", "jitter", "corrupt"):
        raise UsageError(f"`{change}` needs the key `column`: the number of a feature.")
    changed, claimed = known[change](values, Dosed(dose=dose, value=asked.value, random=random))
    columns = dict(inputs.columns)
    if inputs.is_array and asked.column is not None:
        whole = columns["x"].astype(np.result_type(columns["x"], changed))
        whole[:, int(asked.column)] = changed
        changed = whole
    columns[name] = changed
    return columns, claimed


def _changed_rows(before: Mapping[str, Any], after: Mapping[str, Any]) -> Any:
    """Return which rows (num_rows,) differ in some column."""
    num = len(next(iter(before.values())))
    found = np.zeros(num, dtype=bool)
    for name, old in before.items():
        new = np.asarray(after[name]) if name in after else None
        if new is None or new.shape != old.shape:
            return np.ones(num, dtype=bool)
        is_other = new != old
        if old.dtype.kind == "f" and new.dtype.kind == "f":
            is_other &= ~(np.isnan(old) & np.isnan(new))
        found |= is_other.reshape(num, -1).any(axis=1)
    return found


def _judge(
    one: _Planned,
    inputs: ProbeInputs,
    mine: Reactions,
    *,
    theirs: Reactions | None,
    answers: Sequence[RowAnswers],
) -> ProbeResult:
    asked = one.asked
    if asked.kind == COMPLIANCE:
        complies = np.asarray(answers[0].complies)
        if complies.shape != (inputs.num_rows,):
            raise UsageError(
                f"`{asked.check}` returned the shape {complies.shape}; expected a yes or no for "
                f"each of the {inputs.num_rows:,} rows."
            )
        return judge_rows(asked, None, mine, np.ones(inputs.num_rows, dtype=bool), inputs.rows,
                          complies=complies.astype(bool))  # fmt: skip
    changed = list(one.changed) or [
        _changed_rows(inputs.columns, answer.columns or {}) for answer in answers
    ]
    claimed = list(one.claimed) or [np.ones(inputs.num_rows, dtype=bool)] * len(changed)
    for done, promised in zip(changed, claimed, strict=True):
        num, whole = int((done & promised).sum()), int(promised.sum())
        if num < _LEAST_CHANGED * whole or not whole:
            raise UsageError(
                f"ProbeDidNothing: `{asked.name}` changed {num:,} of the {whole:,} rows that it "
                f"should change by `{one.change}`.",
                hint="What changes nothing proves nothing: choose another change, column or size.",
            )
    if asked.kind == PERTURBATION:
        doses = [dose or 0.0 for dose in one.doses]
        return judge_doses(
            asked, one.change, mine, theirs, doses, changed=changed, labels=inputs.labels
        )
    return judge_rows(asked, one.change, mine, changed[0] & claimed[0], inputs.rows)


def _guarded(one: ProbeResult, *, is_constant: bool, has_direction: bool) -> ProbeResult:
    """Take back a PASS that a predictor gets which looks at nothing."""
    if one.outcome is not Outcome.PASS or one.kind == COMPLIANCE:
        return one
    reason = None
    if is_constant:
        reason = "constant_predictor"
    elif one.kind == INVARIANCE and not has_direction:
        reason = "no_direction_probe"
    if reason is None:
        return one
    from dataclasses import replace

    return replace(one, outcome=Outcome.INCONCLUSIVE, reason=reason)
