"""Proposes the parameters of new candidates: Optuna's sampler, asked and told, with its journal.

In: what is searched, and how long candidates took or would have taken. Out: parameters as texts.
The journal is in the search's folder, so that a search that was killed goes on with what it knew.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from steptime.errors import MissingExtraError
from steptime.seek.values.seek_values import SoughtParameter

_MOST_REPEATED = 25
"""So many known candidates proposed after each other: there are no others."""
_DIGITS = 5
# The fraction parts of multiples of a root of x**(d + 1) = x + 1 fill d dimensions evenly.
# Source: M. Roberts, The unreasonable effectiveness of quasirandom sequences, 2018.
_ROOT_STEPS = 60


def load_optuna() -> Any:
    """Return Optuna.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import optuna
    except (ImportError, RuntimeError) as error:
        raise MissingExtraError(
            "The search needs Optuna, which is not installed.",
            needs="steptime[sweep]",
        ) from error
    return optuna


class CandidateSampler:
    """Candidates by number; the number is that of Optuna's trial."""

    def __init__(
        self,
        parameters: Sequence[SoughtParameter],
        *,
        journal: Path | None = None,
        default: Mapping[str, str] | None = None,
        seed: int = 0,
        num_machines: int = 1,
    ) -> None:
        optuna = load_optuna()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna = optuna
        self._parameters = tuple(parameters)
        self._default = default
        self._num_first = 4 + 2 * len(parameters)
        self._scores: dict[tuple[str, ...], float | None] = {}
        self._study = self._open(journal, seed, num_machines)
        self._open_numbers = list[int]()
        names = {one.name for one in self._parameters}
        for trial in self._trials():
            if trial.state is not optuna.trial.TrialState.RUNNING:
                continue
            if names <= trial.params.keys():
                self._open_numbers.append(trial.number)
            else:  # killed while it was proposed
                self._study.tell(trial.number, state=optuna.trial.TrialState.FAIL)

    def _open(self, journal: Path | None, seed: int, num_machines: int) -> Any:
        optuna = self._optuna
        storage = None
        if journal is not None:
            from optuna.storages.journal import JournalFileBackend

            storage = optuna.storages.JournalStorage(JournalFileBackend(str(journal)))
        known = 0
        if storage is not None and storage.get_all_studies():
            known = storage.get_n_trials(storage.get_all_studies()[0]._study_id)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `multivariate` is called experimental
            sampler = optuna.samplers.TPESampler(
                multivariate=True,
                n_startup_trials=self._num_first,
                constant_liar=num_machines > 1,
                # Resumed, it does not begin with the same draws again.
                seed=seed + known,
            )
        return optuna.create_study(
            storage=storage, study_name="steptime", sampler=sampler, load_if_exists=True
        )

    def _trials(self) -> list[Any]:
        trials: list[Any] = self._study.get_trials(deepcopy=False)
        return trials

    def restore(self, runs: Mapping[int, float | None]) -> None:
        """Take up an earlier search: tell the score of each candidate that was not told."""
        for trial in self._trials():
            number = trial.number
            if number in runs:
                self._scores[self._key(self._texts(trial.params))] = runs[number]
                if number in self._open_numbers:
                    self._open_numbers.remove(number)
                    self.tell(number, runs[number])

    def ask(self) -> tuple[int, dict[str, str]] | None:
        """Return number and parameters of a new candidate; None where there is no other."""
        while self._open_numbers:  # begun by a search that was killed
            number = self._open_numbers.pop(0)
            trial = next(one for one in self._trials() if one.number == number)
            texts = self._texts(trial.params)
            key = self._key(texts)
            if key not in self._scores:
                self._scores[key] = None
                return number, texts
            self.tell(number, self._scores[key])  # killed before it was seen that it repeats one
        for _ in range(_MOST_REPEATED):
            number = len(self._trials())
            if number < self._num_first:
                self._study.enqueue_trial(self._first(number))
            trial = self._study.ask(self._distributions())
            texts = self._texts(trial.params)
            key = self._key(texts)
            if key not in self._scores:
                self._scores[key] = None
                return trial.number, texts
            self.tell(trial.number, self._scores[key])
        return None

    def tell(self, candidate: int, score: float | None) -> None:
        """Say how good a candidate is: the log of its time; None: it failed, or is in progress."""
        trial = next(one for one in self._trials() if one.number == candidate)
        if trial.state.is_finished():
            return
        self._scores[self._key(self._texts(trial.params))] = score
        if score is None or not math.isfinite(score):
            self._study.tell(candidate, state=self._optuna.trial.TrialState.FAIL)
        else:
            self._study.tell(candidate, score)

    def _distributions(self) -> dict[str, Any]:
        return {one.name: self._distribution(one) for one in self._parameters}

    def _distribution(self, one: SoughtParameter) -> Any:
        kinds = self._optuna.distributions
        if one.choices:
            if _are_rising(one.choices):  # their order says something: their places are searched
                return kinds.IntDistribution(0, len(one.choices) - 1)
            return kinds.CategoricalDistribution(one.choices)
        low, high = one.low or 0.0, one.high or 0.0
        if one.is_whole:
            return kinds.IntDistribution(int(low), int(high), log=one.is_log)
        return kinds.FloatDistribution(low, high, log=one.is_log)

    def _texts(self, values: Mapping[str, Any]) -> dict[str, str]:
        texts = {}
        for one in self._parameters:
            value = values[one.name]
            if one.choices:
                texts[one.name] = one.choices[value] if _are_rising(one.choices) else value
            elif one.is_whole:
                texts[one.name] = str(value)
            else:
                texts[one.name] = f"{value:.{_DIGITS}g}"
        return texts

    @staticmethod
    def _key(texts: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(texts[name] for name in sorted(texts))

    def _first(self, number: int) -> dict[str, Any]:
        """Return one of the first candidates: the default, or the next of an even spread."""
        if number == 0 and self._default is not None:
            return {one.name: _value_of(one, self._default[one.name]) for one in self._parameters}
        root = 2.0
        for _ in range(_ROOT_STEPS):
            root = (1 + root) ** (1 / (len(self._parameters) + 1))
        return {
            one.name: _at(one, (0.5 + number * root ** -(place + 1)) % 1.0)
            for place, one in enumerate(self._parameters)
        }


def _are_rising(choices: Sequence[str]) -> bool:
    """Return whether all are numbers, each larger than the one before."""
    try:
        numbers = [float(text) for text in choices]
    except ValueError:
        return False
    return all(one < other for one, other in pairwise(numbers))


def _value_of(one: SoughtParameter, text: str) -> Any:
    if one.choices:
        return one.choices.index(text) if _are_rising(one.choices) else text
    return int(text) if one.is_whole else float(text)


def _at(one: SoughtParameter, fraction: float) -> Any:
    """Return the value at a fraction of the way through what is searched."""
    if one.choices:
        place = min(int(fraction * len(one.choices)), len(one.choices) - 1)
        return place if _are_rising(one.choices) else one.choices[place]
    low, high = one.low or 0.0, one.high or 0.0
    if one.is_log:
        value = math.exp(math.log(low) + fraction * (math.log(high) - math.log(low)))
    else:
        value = low + fraction * (high - low)
    return min(max(round(value), int(low)), int(high)) if one.is_whole else value
