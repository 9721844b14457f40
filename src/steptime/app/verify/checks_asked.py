"""What else is asked of a candidate model, beside the comparison with a reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from steptime.errors import UsageError
from steptime.verify.model.whole_verdict import REQUIRABLE
from steptime.verify.values.probe_asked import PERTURBATION, ProbeAsked

Predictor = str | Callable[[Any], Any]
"""FILE.py:FUNCTION, or a function."""

_NEEDED = (
    ("probe", "predict"),
    ("predict", "probe"),
    ("predict", "inputs"),
    ("predict_reference", "predict"),
    ("python", "predict"),
    ("time", "train"),
    ("inputs", "train", "predict"),
)
"""Each has no effect without one of the others."""

_EMPTY = (tuple, type(None))
"""Types of what is not given where it is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecksAsked:
    """What else is asked, by the names of the options and as `verify_model` explains them."""

    train: Any = None
    inputs: Any = None
    predict: Predictor | None = None
    predict_reference: Predictor | None = None
    probe: tuple[ProbeAsked, ...] = ()
    python: str | None = None
    limit_s: float = 600.0
    time: str | None = None
    human: tuple[str, ...] = ()
    preference: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    require: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what has no effect without something else.

        Raises:
            UsageError: something that another option needs is missing, or a name is unknown.
        """
        given = self.given
        for name, *others in _NEEDED:
            if name in given and not given & {*others}:
                option, needed = (
                    " or ".join(f"--{one.replace('_', '-')}" for one in some)
                    for some in ([name], others)
                )
                raise UsageError(f"{option} has no effect without {needed}.", hint=f"Add {needed}.")
        is_perturbed = any(one.kind == PERTURBATION for one in self.probe)
        if self.predict_reference is not None and not is_perturbed:
            raise UsageError("--predict-reference has no effect without a probe perturbation.")
        for name in self.require:
            if name not in REQUIRABLE:
                raise UsageError(
                    f"--require: there is no check `{name}`.",
                    hint=f"It is one of {', '.join(REQUIRABLE)}; others decide in any case.",
                )

    @property
    def is_empty(self) -> bool:
        """Whether nothing is asked of the rows or of a predictor."""
        return not self.given & {"train", "predict", "human", "preference", "also"}

    @property
    def given(self) -> set[str]:
        """The names of what is given."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name for name, one in values.items() if not isinstance(one, _EMPTY) or one}
