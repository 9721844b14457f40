"""Live comparisons over scripted children: who is blamed, what is repeated, what is measured."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steptime.levers.base import Lever, Moment, Preserves
from steptime.tune.search.bench import ComparisonResult, LiveRequest
from steptime.tune.trials.live_trials import LiveTrials, block_steps
from steptime.tune.trials.trial_process import TrialEnded, TrialLimits
from steptime.tune.trials.trial_watch import TrialWatch
from steptime.tune.values.study_values import Applied, State, TrialEnd

BUCKETS = ["other", "compile"]
STEP_S = 0.05
SPEEDS = {"fast": 2.0, "slow": 0.5, "nan": 1.0, "crash": 1.0, "hang": 1.0, "broken": 1.0}
FAILED = TrialEnded(end=TrialEnd.FAILED, reason="exit_code", text="ValueError: no")
HUNG = TrialEnded(end=TrialEnd.TIMED_OUT, reason="hung")
OVER = TrialEnded(end=TrialEnd.FINISHED, reason="ended_itself")
LIMITS = TrialLimits(start_s=10.0, silence_s=10.0, total_s=1000.0)


def make_lever(name: str) -> Lever:
    return Lever(
        name=name,
        title="does as its name says.",
        relieves=(),
        phases=(),
        preserves=Preserves.EXACT,
        when="always.",
        applies=lambda facts: None,
        space=lambda facts: ({},),
        moment=Moment.LIVE,
        edit=lambda settings: "none",
        costs="none.",
        source="none",
    )


LEVERS = {name: make_lever(name) for name in SPEEDS}


def on(*names: str) -> State:
    return tuple(Applied(name=name, settings={}) for name in names)


class ScriptedTrial:
    """A child that does what the names of its levers say, without taking time."""

    def __init__(self, folder: Path, *, num_updates: int) -> None:
        folder.mkdir()
        self.folder = folder
        self.watch = TrialWatch(folder)
        self.limits = LIMITS
        self.age_s = 0.0
        self.is_closed = False
        self._updates_left = num_updates
        self._num = 0
        self._now_ns = 0
        self._answered = -1
        self.levers: set[str] = set()
        self._write({
            "k": "head", "schema": 1, "pid": 1, "rank": 0, "rank_source": "order",
            "world_size": 1, "python": "3.11", "torch": "2.13", "device": "cpu",
            "t_unix_s": 0.0, "buckets": BUCKETS, "counts": [],
        })  # fmt: skip
        for _ in range(30):
            self._step((-1, 0, 0, 1), STEP_S)

    def wait(self, is_done: Callable[[TrialWatch], bool]) -> TrialEnded | None:
        path = self.folder / "live.json"
        ended = None
        if path.exists():
            document = json.loads(path.read_text())
            if document["experiment"] > self._answered:
                self._answered = document["experiment"]
                ended = self._run(document)
        self.watch.read()
        if ended is None:
            assert is_done(self.watch), "the child would wait for ever"
        return ended

    def show(self, text: str) -> None:
        (self.folder / "live.json").write_text(text)

    def note_levers(self, names: Iterable[str]) -> None:
        self.levers |= set(names)

    def close(self) -> TrialEnded:
        self.is_closed = True
        return TrialEnded(end=TrialEnd.FINISHED)

    def _run(self, document: Mapping[str, Any]) -> TrialEnded | None:
        number, names = document["experiment"], [_names(s) for s in document["states"]]
        for index, state in enumerate(names):
            if "broken" in state:
                row = {"k": "lever", "n": 0, "name": "broken", "settings": {}, "state": index}
                self._write({**row, "error": "Oops: no", "experiment": number})
        for turn in range(document["num_rounds"]):
            order = list(range(len(names)))
            random.Random(f"{document['seed']}:{number}:{turn}").shuffle(order)
            for index in order:
                ended = self._block(document, turn, index, names[index])
                if ended is not None:
                    return ended
        is_finite = not any("nan" in state for state in names)
        self._write({"k": "experiment", "experiment": number, "n": self._num, "graphs": 0,
                     "fallbacks": 0, "is_finite": is_finite})  # fmt: skip
        return None

    def _block(
        self, document: Mapping[str, Any], turn: int, index: int, names: list[str]
    ) -> TrialEnded | None:
        if "broken" in names:
            return None
        if "crash" in names:
            return FAILED
        if "hang" in names:
            return HUNG
        step_s = STEP_S / math.prod(SPEEDS[name] for name in names)
        for counts in [0] * document["settle_steps"] + [1] * document["block_steps"]:
            if self._updates_left == 0:
                return OVER
            self._updates_left -= 1
            self._step((document["experiment"], turn, index, counts), step_s)
        return None

    def _step(self, place: tuple[int, int, int, int], step_s: float) -> None:
        wall_ns = round(step_s * 1e9)
        start_ns, self._now_ns = self._now_ns, self._now_ns + wall_ns
        row = [self._num, 0, 0, start_ns, self._now_ns, 0, 1, wall_ns, 0, wall_ns, 0]
        self._write({"k": "u", "rows": [row]})
        self._write({"k": "t", "rows": [[self._num, *place, 16]]})
        self._num += 1
        self.age_s += step_s

    def _write(self, row: Mapping[str, Any]) -> None:
        with (self.folder / "rank-0.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")


def _names(state: list[dict[str, Any]]) -> list[str]:
    return [one["name"] for one in state]


class Children:
    """Starts scripted trials, and knows them all."""

    def __init__(self, folder: Path, *, num_updates: int = 100_000) -> None:
        self._folder = folder
        self._num_updates = num_updates
        self._numbers = itertools.count()
        self.all: list[ScriptedTrial] = []

    def start(self, fixed: State) -> Any:
        assert all(child.is_closed for child in self.all), "two at once"
        trial = ScriptedTrial(
            self._folder / str(next(self._numbers)), num_updates=self._num_updates
        )
        self.all.append(trial)
        return trial


def compare(children: Children, *states: State, num_rounds: int = 5) -> ComparisonResult:
    world = LiveTrials(children.start, LEVERS, slack_s=10.0)
    return world.compare(LiveRequest(fixed=(), states=((), *states), num_rounds=num_rounds))


@pytest.fixture
def children(tmp_path: Path) -> Children:
    return Children(tmp_path)


def test_a_state_is_compared_with_the_reference_round_by_round(children: Children) -> None:
    result = compare(children, on("fast"), on("slow"))

    fast, slow = result.arms
    assert fast.log_ratios == pytest.approx([math.log(2)] * 5)
    assert slow.cpu_log_ratios == pytest.approx([math.log(0.5)] * 5)
    assert result.reference_step_s == pytest.approx(STEP_S)
    assert result.ending.is_well


def test_requests_with_the_same_fixed_levers_share_a_process(children: Children) -> None:
    world = LiveTrials(children.start, LEVERS, slack_s=10.0)
    request = LiveRequest(fixed=(), states=((), on("fast")), num_rounds=2)

    results = [world.compare(request) for _ in range(3)]

    assert [len(result.arms[0].log_ratios) for result in results] == [2, 2, 2]
    assert len(children.all) == 1


def test_other_fixed_levers_or_a_wish_make_a_new_process(children: Children) -> None:
    world = LiveTrials(children.start, LEVERS, slack_s=10.0)
    request = LiveRequest(fixed=(), states=((), on("fast")), num_rounds=1)

    for one in (request, replace(request, is_fresh=True), replace(request, fixed=on("slow"))):
        world.compare(one)

    assert len(children.all) == 3


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("crash", TrialEnd.FAILED),
        ("hang", TrialEnd.TIMED_OUT),
        ("nan", TrialEnd.DIVERGED),
        ("broken", TrialEnd.FAILED),
    ],
)
def test_a_state_that_ends_its_process_loses_its_own_arm_alone(
    children: Children, name: str, end: TrialEnd
) -> None:
    result = compare(children, on("fast"), on(name), on("slow"))

    assert result.ending.is_well
    assert [arm.ending.end for arm in result.arms] == [TrialEnd.FINISHED, end, TrialEnd.FINISHED]
    assert len(result.arms[0].log_ratios) >= 5
    assert len(result.arms[2].log_ratios) >= 5


def test_an_arm_that_failed_says_why(children: Children) -> None:
    crash, broken = compare(children, on("crash"), on("broken")).arms

    assert crash.ending.reason == "exit_code"
    assert crash.ending.facts is not None
    assert crash.ending.facts["last_line"] == "ValueError: no"
    assert (broken.ending.reason, broken.ending.facts) == ("lever_failed", {"error": "Oops: no"})


def test_a_short_script_is_started_again_until_the_rounds_are_full(tmp_path: Path) -> None:
    children = Children(tmp_path, num_updates=20)

    result = compare(children, on("fast"), num_rounds=10)

    assert result.ending.is_well
    assert 1 < len(children.all) < 6
    assert len(result.arms[0].log_ratios) == 10


def test_a_script_that_ends_soon_after_it_is_warm_is_asked_from_its_first_steps_on(
    tmp_path: Path,
) -> None:
    children = Children(tmp_path, num_updates=3)  # after thirty that pass while it warms up

    result = compare(children, on("fast"), num_rounds=3)

    starts = [json.loads((c.folder / "live.json").read_text())["starts_at"] for c in children.all]
    assert starts[:2] == [30, 5]
    # This child never does what it is asked at its start.
    assert result.ending.end is TrialEnd.FAILED


def test_a_script_that_is_over_at_once_is_given_up(tmp_path: Path) -> None:
    children = Children(tmp_path, num_updates=1)

    result = compare(children, on("fast"))

    assert (result.ending.end, result.ending.reason) == (TrialEnd.FAILED, "ends_too_soon")


def test_an_interrupt_ends_the_process(children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: ScriptedTrial, is_done: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ScriptedTrial, "wait", interrupt)

    with pytest.raises(KeyboardInterrupt):
        compare(children, on("fast"))

    assert all(child.is_closed for child in children.all)


@pytest.mark.parametrize(
    ("steps_s", "steps"),
    [
        ([0.001, 0.001], 75),  # 75 ms
        ([0.03, 0.02], 2),
        ([0.5, 0.5], 1),
        ([0.02, 0.001], 15),  # 20 ms of the fast one, 300 of the slow one
        ([0.0003, 0.01], 250),
    ],
)
def test_a_block_lasts_long_enough_for_the_fastest_state(steps_s: list[float], steps: int) -> None:
    assert block_steps(steps_s) == steps
