"""What else is asked of a candidate model, beside the comparison with a reference."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from steptime.errors import UsageError
from steptime.verify.values.probe_asked import PERTURBATION, ProbeAsked


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecksAsked:
    """What else is asked.

    Attributes:
        train: the table of the training rows, for simple predictors and leaks.
        inputs: the features of the evaluation rows, for the same and for probes.
        predict, predict_reference: predictors of both arms, as FILE.py:FUNCTION.
        probes: what they are probed for.
        python: the interpreter that runs them; None for the first on the PATH.
        limit_s: the time after which one is ended [s].
        time: the column of the time, for the last value.
        humans: columns with the labels of people.
        preferences: columns with what people prefer.
        others: further columns of numbers.
    """

    train: Path | None = None
    inputs: Path | None = None
    predict: str | None = None
    predict_reference: str | None = None
    probes: tuple[ProbeAsked, ...] = ()
    python: str | None = None
    limit_s: float = 600.0
    time: str | None = None
    humans: tuple[str, ...] = ()
    preferences: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what has no effect without something else.

        Raises:
            UsageError: something that another option needs is missing.
        """
        lacks = [
            ("--probe", "--predict", self.probes and self.predict is None),
            ("--predict", "--probe", self.predict is not None and not self.probes),
            ("--predict", "--inputs", self.predict is not None and self.inputs is None),
            ("--predict-reference", "--predict", self.predict_reference and not self.predict),
            (
                "--predict-reference",
                "--probe perturbation",
                self.predict_reference and all(one.kind != PERTURBATION for one in self.probes),
            ),
            ("--time", "--train", self.time is not None and self.train is None),
            ("--inputs", "--train or --predict", self.inputs and not (self.train or self.predict)),
        ]
        for given, needed, is_lacking in lacks:
            if is_lacking:
                raise UsageError(f"{given} has no effect without {needed}.", hint=f"Add {needed}.")

    @property
    def is_empty(self) -> bool:
        """Whether nothing else is asked."""
        return not any((self.train, self.predict, self.humans, self.preferences, self.others))
