"""What the search writes down: trials, choices, what it did not try, and what it found.

`Notes` is the only place where these records change. `Found` leaves the search at its end, a
`SearchSummary` after each answer. What is not decided yet is None, so that each of them can be
saved as a study.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from steptime.core.evidence import Evidence
from steptime.core.interval import Interval
from steptime.core.note import Fact
from steptime.tune.search.proof.pairs import to_speedup
from steptime.tune.values.study_values import (
    WELL,
    Applied,
    Choice,
    Ending,
    FewPairs,
    Found,
    NotTried,
    State,
    Trial,
    TrialEnd,
)
from steptime.verify.values import Verdict

Key = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]


def key_of(state: State) -> Key:
    """The state as a key; states with the same levers in another order have the same key."""
    return tuple(
        sorted(
            (one.name, tuple(sorted((name, repr(value)) for name, value in one.settings.items())))
            for one in state
        )
    )


def names_of(state: State) -> str:
    """The levers of a state with their settings, for a fact."""
    return " + ".join(label(one) for one in state)


def label(applied: Applied) -> str:
    """A lever with its settings, for a fact."""
    settings = ", ".join(f"{name}={value}" for name, value in applied.settings.items())
    return f"{applied.name}({settings})" if settings else applied.name


def number(value: float) -> float:
    """A number for a fact: four significant digits, so that one decision noted twice is one."""
    return float(f"{value:.4g}")


def numbers_of(found: Interval) -> dict[str, Fact]:
    """A speedup as facts."""
    return {
        "speedup": number(found.estimate),
        "low": number(found.low),
        "high": number(found.high),
        "n": found.n,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSummary:
    """Where the search is, after each answer.

    `phase` is `observe`, `live`, `process`, `quality` or `confirm`; `ended` the trial that the
    answer was for; `best` is over the command as written, not proven yet; `found` is a legal
    study as of now.
    """

    phase: str
    ended: Trial | None
    best_state: State
    best: Interval | None
    left_s: float
    found: Found


class Notes:
    """Trials, choices and levers that were not tried, in the order in which they came."""

    def __init__(self) -> None:
        self._trials: dict[tuple[str, Key, Key], Trial] = {}
        self._choices: dict[tuple[str, str | None, tuple[tuple[str, Fact], ...]], Choice] = {}
        self._not_tried: dict[str, NotTried] = {}
        self._latest: tuple[str, Key, Key] | None = None

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All so far."""
        return tuple(self._trials.values())

    @property
    def latest(self) -> Trial | None:
        """The trial that the last answer was about."""
        return None if self._latest is None else self._trials[self._latest]

    @property
    def choices(self) -> tuple[Choice, ...]:
        """All so far."""
        return tuple(self._choices.values())

    def not_tried(
        self, offered: Mapping[str, float | None], *, waiting: Collection[str] = ()
    ) -> tuple[NotTried, ...]:
        """Levers that were not tried; of those offered, what is in no trial had no time.

        What still waits failed in an earlier study, and was not needed.

        Args:
            offered: by name what each can give at most; None where that is not known.
            waiting: names.
        """
        tried = {one.name for trial in self.trials for one in trial.state}
        late = [name for name in offered if name not in tried and name not in self._not_tried]
        missed = tuple(
            NotTried(name=name, reason="failed_before")
            if name in waiting
            else _no_time(name, offered[name])
            for name in late
        )
        known = tuple(one for one in self._not_tried.values() if one.name not in tried)
        return known + missed

    @property
    def left_out(self) -> frozenset[str]:
        """Names of levers that are not tried, for a reason other than time."""
        return frozenset(self._not_tried)

    def was_dropped(self, state: State) -> bool:
        """Whether the state gave way to another setting, or its one-off cost is not earned."""
        return any(
            one.end is TrialEnd.PRUNED or one.reason == "not_earned"
            for one in self.trials
            if key_of(one.state) == key_of(state)
        )

    def not_told_apart(self, recipe: State) -> State:
        """The levers of a recipe of several that nothing shows to help by themselves.

        What does is a comparison in which nothing else differs, of a part of the recipe or of more
        than it, whose interval lies above no change.
        """
        told = {key_of(one) for trial in self.trials if (one := _that_helps(trial, recipe))}
        rest = tuple(one for one in recipe if key_of((one,)) not in told)
        return rest if len(recipe) > 1 else ()

    def note_floors(self, floors: Mapping[bool, float], num_same: int) -> None:
        """Note the noise floors as they are known now, by wall and by CPU time."""
        words = {False: "wall", True: "cpu"}
        facts = {words[is_cpu]: number(floor) for is_cpu, floor in floors.items()}
        self.choose("noise_floor", None, n=num_same, **facts)

    def choose(self, code: str, lever: str | None = None, **facts: Fact) -> None:
        """Note a decision; the same one twice is one."""
        choice = Choice(code=code, lever=lever, facts=facts or None)
        self._choices.setdefault((code, lever, tuple(sorted(facts.items()))), choice)

    def leave_out(self, refused: Sequence[NotTried]) -> None:
        """Note levers that are not tried."""
        for one in refused:
            self._not_tried.setdefault(one.name, one)

    def take_in(self, names: Collection[str]) -> None:
        """Note levers that are tried all the same, if there is time."""
        for name in names:
            self._not_tried.pop(name, None)

    def try_out(
        self,
        kind: str,
        state: State,
        *,
        reference: State = (),
        ending: Ending = WELL,
        found: Interval | None = None,
        few: FewPairs | None = None,
        quality: Verdict | None = None,
    ) -> None:
        """Note a trial; what is known of the same one (kind, state, reference) is replaced."""
        key = (kind, key_of(state), key_of(reference))
        before, self._latest = self._trials.get(key), key
        self._trials[key] = Trial(
            number=len(self._trials) if before is None else before.number,
            state=state,
            end=ending.end,
            kind=kind,
            speedup=None if found is None else to_speedup(found),
            few=few,
            reference=reference,
            quality=quality,
            reason=ending.reason,
            facts=ending.facts,
        )

    def explain(
        self,
        kind: str,
        state: State,
        reference: State,
        reason: str | None,
        facts: Mapping[str, Fact] | None = None,
    ) -> None:
        """Say why a trial that is noted was not kept; one that ended badly keeps its reason.

        With the reasons `halved` and `pruned` it was stopped early: its end is `pruned`.
        """
        key = (kind, key_of(state), key_of(reference))
        trial = self._trials.get(key)
        if trial is not None and trial.end in (TrialEnd.FINISHED, TrialEnd.PRUNED):
            end = TrialEnd.PRUNED if reason in ("halved", "pruned") else TrialEnd.FINISHED
            self._trials[key] = replace(trial, end=end, reason=reason, facts=facts)


def _that_helps(trial: Trial, recipe: State) -> State:
    """The one lever that a trial shows to help within the recipe; empty where it shows none."""
    inside = [one for one in trial.state if one in recipe]
    is_part = len(inside) in (len(trial.state), len(recipe))
    more = tuple(one for one in trial.state if one not in trial.reference)
    is_single = len(more) == 1 and len(trial.reference) == len(trial.state) - 1
    is_gain = trial.speedup is not None and trial.speedup.low > 1 and trial.reason is None
    return more if is_part and is_single and is_gain and trial.kind in ("live", "process") else ()


def _no_time(name: str, most: float | None) -> NotTried:
    """A lever for which no time was left, with the speedup that it could have given at most."""
    if most is None:
        return NotTried(name=name, reason="no_time")
    evidence = (Evidence(name="headroom", value=most, unit="x"),)
    return NotTried(name=name, reason="no_time", evidence=evidence)
