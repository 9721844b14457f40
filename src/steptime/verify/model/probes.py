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
    doses: Sequence[float | None] = (None,)
    requests: Sequence[PredictRequest]


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
    num, change = inputs.num_rows, str(asked.change)
    if asked.kind == COMPLIANCE:
        request = PredictRequest(check=asked.check)
        return _Planned(asked=asked, num_claimed=num, requests=(request,))
    if ":" in change:
        doses: Sequence[float | None] = (asked.size,)
        if asked.kind == PERTURBATION:
            doses = asked.doses or _FRACTIONS
        asks = [PredictRequest(change=change, dose=dose) for dose in doses]
        return _Planned(asked=asked, change=change, num_claimed=num, doses=doses, requests=asks)
    columns = _columns(inputs, asked)
    if asked.kind == FRESH:
        change = _draw(_changers(next(iter(columns.values()))), asked, number)
    sizes = asked.doses or _DOSES.get(change, _FRACTIONS)
    if asked.kind != PERTURBATION:
        sizes = (_SIZES.get(change, 1.0) if asked.size is None else asked.size,)
    asks = []
    for i, size in enumerate(sizes):
        random = np.random.default_rng((SEED, number, i))
        how = Dosed(dose=size, value=asked.value, random=random)
        changed = {n: _changer(n, values, change)(values, how) for n, values in columns.items()}
        asks.append(PredictRequest(columns=changed))
    has = np.logical_or.reduce([_has_value(values) for values in columns.values()])
    return _Planned(
        asked=asked, change=change, num_claimed=int(has.sum()), doses=sizes, requests=asks
    )


def _columns(inputs: ProbeInputs, asked: ProbeAsked) -> dict[str, Any]:
    """Return the column that is changed; of an array, all features where none is named."""
    name = asked.column
    if name is None and not inputs.is_array:
        raise UsageError(f"the probe `{asked.name}` needs the key `column`.")
    if name is not None and name not in inputs.columns:
        known = ", ".join(f"`{one}`" for one in list(inputs.columns)[:20])
        raise UsageError(f"the inputs have no column `{name}`; they have {known}.")
    found = inputs.columns if name is None else {name: inputs.columns[name]}
    filled = {name: values for name, values in found.items() if _has_value(values).any()}
    if not filled:
        raise UsageError(f"ProbeDidNothing: `{asked.name}` finds no value that it could change.")
    return filled


def _has_value(values: Any) -> Any:
    """Return which rows (num_rows,) have something that can be changed."""
    has = values != "" if is_text(values) else ~np.isnan(values)
    return has.reshape(len(has), -1).any(axis=1)


def _changers(values: Any) -> Mapping[str, Changer]:
    return OF_PICTURES if values.ndim >= 3 else OF_TEXT if is_text(values) else OF_NUMBERS


def _changer(name: str, values: Any, change: str) -> Changer:
    known = _changers(values)
    if change not in known:
        raise UsageError(
            f"there is no change `{change}` of {values.dtype} of shape {values.shape}, which "
            f"`{name}` is.",
            hint=f"Name one of {', '.join(known)}, or a function of yours: FILE.py:FUNCTION",
        )
    return known[change]


def _draw(known: Mapping[str, Changer], asked: ProbeAsked, number: int) -> str:
    """Draw an augmentation that the training did not use."""
    suiting = [name for name in known if name in _FRESH]
    left = [name for name in suiting if name not in asked.trained]
    if not left:
        raise UsageError(
            f"the training used every augmentation that suits these inputs: {', '.join(suiting)}.",
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
        return judge_rows(asked, seen[0], every, inputs.rows, ~complies.astype(bool))
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
