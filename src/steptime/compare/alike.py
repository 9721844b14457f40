"""Decides which runs may be compared, and finds what changed between two sets of runs.

In: compared runs. Out: changes, obstacles and remarks, as machine words with their facts. `report`
has the words for people; `judge` says what the step times mean.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from steptime.compare.values import ComparedRun, Obstacle, TraitChange
from steptime.core.note import Fact, Note
from steptime.core.process_end import ProcessEnd, RunState

Runs = Sequence[ComparedRun]

MIN_COUNTED = 6
"""With fewer steps the median has no 95 % interval, and the diagnosis is inconclusive."""

BUSY_CORES = 0.5
"""Cores that others used on average; half a core is a quarter of a machine with two."""

_SAME = (
    ("script", "", "other_script"),
    ("machine", "cpu", "other_machine"),
    ("machine", "num_cores", "other_machine"),
    ("device", "", "other_device"),
    ("ranks", "", "other_ranks"),
)
"""What must be equal so that the training explains a difference, and the word if it is not."""

_USERS_SIGNALS = (2, 15)
"""SIGINT and SIGTERM mean that somebody, or a time limit, ended the run."""
_USERS_CODES = (124, 130, 143)
"""The exit codes with which `timeout` and shells report the same."""

# Names of variables without values say little, and the folder of a checkout says nothing.
_IDLE = ("variable", "folder")
_CODE = ("code", "revision")
_TOLD_BY_RANKS = ("version", "ranks", "device", "threads", "loader", "input")
_OWN_VERSION = ("version", "steptime")


# -- what changed


def find_changes(a: Runs, b: Runs) -> tuple[TraitChange, ...]:
    """Return the traits that differ between the runs of A and of B, together for each set.

    It leaves out what only ranks show where a side has no ranks: not seen is not changed. Another
    script has other code, so it says nothing about the code then.
    """
    of_a, of_b = _SideTraits(a), _SideTraits(b)
    is_seen = all(side.values("ranks", "") for side in (of_a, of_b))
    is_one_script = of_a.values("script", "") == of_b.values("script", "")
    found = []
    for what, name in dict.fromkeys((*of_a.keys, *of_b.keys)):
        if what in _TOLD_BY_RANKS and (what, name) != _OWN_VERSION and not is_seen:
            continue
        if what == "code" and not is_one_script:
            continue
        values_a, values_b = of_a.values(what, name), of_b.values(what, name)
        if values_a != values_b:
            found.append(TraitChange(what=what, name=name, a=values_a, b=values_b))
    return tuple(found)


class _SideTraits:
    """The traits of a set of runs, read once: whoever asks each run for each trait asks for long.

    Several loaders of one class share a name, so a run may have a trait twice; its first value is
    the one that it has.
    """

    def __init__(self, runs: Runs) -> None:
        self._num_runs = len(runs)
        self._firsts: dict[tuple[str, str], Counter[str]] = {}
        self._others: dict[tuple[str, str], set[str]] = {}
        for run in runs:
            first: dict[tuple[str, str], str] = {}
            for trait in run.traits:
                key = trait.what, trait.name
                if first.setdefault(key, trait.value) != trait.value:
                    self._others.setdefault(key, set()).add(trait.value)
            for key, value in first.items():
                if key not in self._firsts:
                    self._firsts[key] = Counter()
                self._firsts[key][value] += 1

    @property
    def keys(self) -> tuple[tuple[str, str], ...]:
        """Return what and name of each trait, in the order in which they were seen."""
        return tuple(self._firsts)

    def values(self, what: str, name: str) -> tuple[str, ...]:
        """Return the values of a trait, each once; a run may lack the trait."""
        return tuple(sorted(self._firsts.get((what, name), ())))

    def is_split(self, key: tuple[str, str]) -> bool:
        """Return whether runs have different values, or some lack the trait."""
        firsts = self._firsts[key]
        return (
            len(firsts) > 1 or firsts.total() < self._num_runs or bool(self._others.get(key, set()))
        )


# -- what prevents a judgement


def find_obstacles(a: Runs, b: Runs) -> tuple[Obstacle, ...]:
    """Return why the sets should not be judged; those that no flag can overrule come first."""
    runs = (*a, *b)
    return (*_without_steps(runs), *_named_twice(runs), *_failed(runs), *_unlike(a, b))


def _without_steps(runs: Runs) -> Iterator[Obstacle]:
    for run in runs:
        if run.step_s is None or run.num_counted < MIN_COUNTED:
            facts: dict[str, Fact] = {
                "run": run.run_id,
                "steps": run.num_steps,
                "counted": run.num_counted,
                "needed": MIN_COUNTED,
            }
            yield Obstacle(code="too_few_steps", facts=facts, is_final=True)


def _named_twice(runs: Runs) -> Iterator[Obstacle]:
    """Yield runs that are on both sides: a run compared with itself shows no noise."""
    places = Counter(run.place for run in runs)
    for run in runs:
        if places.pop(run.place, 1) > 1:
            yield Obstacle(code="named_twice", facts={"run": run.run_id}, is_final=True)


def _failed(runs: Runs) -> Iterator[Obstacle]:
    for run in runs:
        if has_failed(run.end):
            end = f"signal {run.end.signal}" if run.end.signal else f"code {run.end.exit_code}"
            yield Obstacle(code="failed", facts={"run": run.run_id, "end": end})


def has_failed(end: ProcessEnd) -> bool:
    """Return whether the training failed; it did not if somebody, or a time limit, ended it."""
    if end.state is RunState.FAILED:
        return end.exit_code not in _USERS_CODES
    return end.state is RunState.KILLED and end.signal not in _USERS_SIGNALS


def _unlike(a: Runs, b: Runs) -> Iterator[Obstacle]:
    seen = set()
    sides = _SideTraits(a), _SideTraits(b)
    for what, name, code in _SAME:
        of_a, of_b = (side.values(what, name) for side in sides)
        if of_a and of_b and of_a != of_b and code not in seen:
            seen.add(code)
            facts = {"a": ", ".join(of_a), "b": ", ".join(of_b)}
            yield Obstacle(code=code, facts=facts)
    inputs = {name for side in sides for what, name in side.keys if what == "input"}
    for name in sorted(inputs):
        of_a, of_b = (side.values("input", name) for side in sides)
        if of_a and of_b and of_a != of_b:
            facts = {"name": name, "a": ", ".join(of_a), "b": ", ".join(of_b)}
            yield Obstacle(code="other_input", facts=facts)


# -- what else to know


def find_remarks(a: Runs, b: Runs) -> tuple[Note, ...]:
    """Return what else a reader of the numbers must know."""
    runs = (*a, *b)
    found = [*_lengths(a, b), *_mixed("A", a), *_mixed("B", b)]
    found += [Note(code="unfinished", facts={"run": r.run_id}) for r in runs if not r.end.is_over]
    if not are_interleaved(a, b):
        found.append(Note(code="not_interleaved", facts={}))
    if have_other_hosts(a, b):
        found.append(Note(code="other_hosts", facts={}))
    busy = [run for run in runs if (run.others_cores or 0.0) > BUSY_CORES]
    if busy:
        most = max(run.others_cores or 0.0 for run in busy)
        facts = {"count": len(busy), "of": len(runs), "cores": most}
        found.append(Note(code="contended", facts=facts))
    return tuple(found)


def _lengths(a: Runs, b: Runs) -> Iterator[Note]:
    of_a, of_b = ({run.num_steps for run in runs} for runs in (a, b))
    if of_a != of_b:
        yield Note(code="other_lengths", facts={"a": _range(of_a), "b": _range(of_b)})


def _range(numbers: set[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _mixed(side: str, runs: Runs) -> Iterator[Note]:
    """Yield remarks on runs of one set that were not made alike."""
    traits = _SideTraits(runs)
    names = {
        name or what
        for what, name in traits.keys
        if what not in (*_IDLE, "place") and traits.is_split((what, name))
    }
    if names:
        yield Note(code="mixed", facts={"side": side, "names": ", ".join(sorted(names))})


def are_interleaved(a: Runs, b: Runs) -> bool:
    """Return whether the runs of A and of B took turns.

    If all runs of one set came before those of the other, a change of the machine between them
    looks like a change of the training.
    """
    of_a, of_b = ([run.started_unix_s for run in runs] for runs in (a, b))
    return max(of_a) >= min(of_b) and max(of_b) >= min(of_a)


def have_other_hosts(a: Runs, b: Runs) -> bool:
    """Return whether no machine made runs of both sets."""
    return not {run.host for run in a} & {run.host for run in b}


# -- stored runs


def is_kin(run: ComparedRun, of: ComparedRun) -> bool:
    """Return whether a stored run shows how much runs of this kind differ."""
    same = all(run.trait(what, name) == of.trait(what, name) for what, name, _ in _SAME)
    is_sound = run.step_s is not None and math.isfinite(run.step_s)
    return same and is_sound and run.num_counted >= MIN_COUNTED and not has_failed(run.end)


def kind_of(run: ComparedRun, *, with_code: bool, with_host: bool) -> tuple[object, ...]:
    """Return what two stored runs share if they are repeats of each other."""
    left_out = _IDLE if with_code else (*_IDLE, *_CODE)
    traits = sorted((t.what, t.name, t.value) for t in run.traits if t.what not in left_out)
    return (*traits, run.host if with_host else "", run.num_steps)
