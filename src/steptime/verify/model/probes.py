"""Probes a predictor: changes its inputs and judges, row by row, how its predictions react.

In: inputs, the probes that are asked for, and a way to ask the predictor. Out: a `ProbeReport`.
Everything that is to be predicted is asked for at once, so that a model is loaded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from steptime.verify.values.check_results import ProbeReport, ProbeResult
from steptime.verify.values.probe_asked import (
    COMPLIANCE,
    DIRECTION,
    FRESH,
    INVARIANCE,
    PERTURBATION,
    ProbeAsked,
)

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
        columns: by name, an array (num_rows, ...). Of an array (num_rows, num_features), they are
            its features by their number; of another array, it is `x` alone.
        is_array: whether the predictor gets that array, not a dict of columns.
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
        change: a function of the user's that changes them, as FILE.py:FUNCTION.
        dose: what that function gets beside them.
        check: a function of the user's that says of inputs and predictions which rows comply.
    """

    columns: Mapping[str, Any] = field(default_factory=dict)
    change: str | None = None
    dose: float | None = None
    check: str | None = None

    def task(self) -> tuple[str | None, float | None, str | None]:
        """Return what functions of the user's are asked."""
        return self.change, self.dose, self.check


@dataclass(frozen=True, slots=True, kw_only=True)
class RowAnswers:
    """Predictions (num_rows, ...), and the rows (num_rows,) that were changed and that comply."""

    predictions: Any
    changed: Any
    complies: Any = None


Ask = Callable[[Sequence[PredictRequest]], Sequence[RowAnswers]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """A probe with its change, the rows that it should change, and a request for each dose."""

    asked: ProbeAsked
    change: str | None = None
    num_claimed: int
    doses: tuple[float | None, ...] = (None,)
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
    requests = [PredictRequest()] * 2 + [request for one in planned for request in one.requests]
    answers = list(ask(requests))
    both = [answers] if reference is None else [answers, list(reference(requests))]
    base, *others = (
        [predictions_of(one.predictions, inputs.num_rows) for one in some] for some in both
    )
    is_constant = bool((base[0] == base[0][:1]).all())
    has_direction = any(one.kind == DIRECTION for one in asked)
    results, at = list[ProbeResult](), 2
    for one in planned:
        part = slice(at, at + len(one.requests))
        at = part.stop
        seen = [Reactions(some[0], some[1], some[part]) for some in (base, *others)]
        found, kind = _judge(one, inputs, seen, answers[part]), one.asked.kind
        # A predictor that looks at nothing passes, too.
        why = "no_direction_probe" if kind == INVARIANCE and not has_direction else None
        why = "constant_predictor" if is_constant and kind != COMPLIANCE else why
        if found.outcome is Outcome.PASS and why is not None:
            found = replace(found, outcome=Outcome.INCONCLUSIVE, reason=why)
        results.append(found)
    return ProbeReport(
        num_rows=inputs.num_rows,
        is_random=not np.array_equal(base[0], base[1]),
        is_constant=is_constant,
        results=tuple(results),
    )


def _plan(inputs: ProbeInputs, asked: ProbeAsked, number: int) -> _Planned:
    """Return the requests of a probe."""
    num = inputs.num_rows
    if asked.kind == COMPLIANCE:
        request = PredictRequest(check=asked.check)
        return _Planned(asked=asked, num_claimed=num, requests=(request,))
    change = str(asked.change)
    is_of_user = ":" in change
    if asked.kind == FRESH:
        change = _draw(inputs, asked, number)
    doses: tuple[float | None, ...] = (asked.size,)
    if asked.kind == PERTURBATION:
        doses = asked.doses or _DOSES.get(change, _FRACTIONS)
    elif asked.size is None and not is_of_user:
        doses = (_SIZES.get(change, 1.0),)
    if is_of_user:
        requests = tuple(PredictRequest(change=change, dose=dose) for dose in doses)
    else:
        targets = _targets(inputs, asked, change)

        def changed(i: int, dose: float) -> PredictRequest:
            random = np.random.default_rng((SEED, number, i))
            how = Dosed(dose=dose, value=asked.value, random=random)
            columns = {name: make(inputs.columns[name], how) for name, make in targets}
            return PredictRequest(columns=columns)

        requests = tuple(changed(i, dose or 0.0) for i, dose in enumerate(doses))
        num = int(np.logical_or.reduce([_has_value(inputs.columns[n]) for n, _ in targets]).sum())
    return _Planned(asked=asked, change=change, num_claimed=num, doses=doses, requests=requests)


def _changers(values: Any) -> tuple[str, Mapping[str, Changer]]:
    """Return what the values are, and what can be done to them."""
    if values.ndim >= 3:
        return "pictures", OF_PICTURES
    return ("text", OF_TEXT) if is_text(values) else ("numbers", OF_NUMBERS)


def _has_value(values: Any) -> Any:
    """Return which rows (num_rows,) have something that can be changed."""
    has = values != "" if is_text(values) else ~np.isnan(values)
    return has.reshape(len(has), -1).any(axis=1)


def _names(inputs: ProbeInputs, asked: ProbeAsked) -> list[str]:
    """Return the column that is changed; of an array, all features where none is named."""
    if asked.column is None and not inputs.is_array:
        raise UsageError(f"the probe `{asked.name}` needs the key `column`.")
    if asked.column is not None and asked.column not in inputs.columns:
        known = ", ".join(f"`{one}`" for one in list(inputs.columns)[:20])
        raise UsageError(f"the inputs have no column `{asked.column}`; they have {known}.")
    return list(inputs.columns) if asked.column is None else [asked.column]


def _targets(inputs: ProbeInputs, asked: ProbeAsked, change: str) -> list[tuple[str, Changer]]:
    """Return each column that is changed, with what changes it."""
    found = list[tuple[str, Changer]]()
    for name in _names(inputs, asked):
        values = inputs.columns[name]
        what, known = _changers(values)
        if change not in known:
            raise UsageError(
                f"there is no change `{change}` of {what}, which `{name}` has.",
                hint=f"Name one of {', '.join(known)}, or a function of yours: FILE.py:FUNCTION",
            )
        if _has_value(values).any():
            found.append((name, known[change]))
    if not found:
        raise UsageError(f"ProbeDidNothing: `{asked.name}` finds no value that it could change.")
    return found


def _draw(inputs: ProbeInputs, asked: ProbeAsked, number: int) -> str:
    """Draw an augmentation that the training did not use."""
    first = inputs.columns[_names(inputs, asked)[0]]
    known = [name for name in _changers(first)[1] if name in _FRESH]
    left = [name for name in known if name not in asked.trained]
    if not left:
        raise UsageError(
            f"the training used every augmentation that suits these inputs: {', '.join(known)}.",
            hint="Name a change of your own in a probe of kind invariance: change=FILE.py:FUNCTION",
        )
    return left[int(np.random.default_rng((SEED, number)).integers(len(left)))]


def _judge(
    one: _Planned, inputs: ProbeInputs, seen: Sequence[Reactions], answers: Sequence[RowAnswers]
) -> ProbeResult:
    asked, num = one.asked, inputs.num_rows
    if asked.kind == COMPLIANCE:
        complies = np.asarray(answers[0].complies)
        if complies.shape != (num,) or complies.dtype.kind not in "biu":
            raise UsageError(
                f"`{asked.check}` returned {complies.dtype} of shape {complies.shape}; expected "
                f"True or False for each of the {num:,} rows."
            )
        every = np.ones(num, dtype=bool)
        return judge_rows(asked, seen[0], every, inputs.rows, breaks=~complies.astype(bool))
    changed = [np.asarray(answer.changed) for answer in answers]
    claimed, fewest = one.num_claimed, min(int(rows.sum()) for rows in changed)
    least = max(1 if one.change in PARTIAL else _LEAST_CHANGED * claimed, 1)
    if fewest < least:
        raise UsageError(
            f"ProbeDidNothing: `{asked.name}` changed {fewest:,} of the {claimed:,} rows "
            f"that it should change by `{one.change}`.",
            hint="What changes nothing proves nothing: choose another change, column or size.",
        )
    if asked.kind == PERTURBATION:
        found = judge_doses(asked, seen, [dose or 0.0 for dose in one.doses], inputs.labels)
    else:
        found = judge_rows(asked, seen[0], changed[0], inputs.rows)
    return replace(found, change=one.change)
