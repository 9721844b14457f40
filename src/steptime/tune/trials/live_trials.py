"""Live comparisons: states in turns inside one running process.

In: a way to start trials, and requests. Out: `ComparisonResult`s. A state that ends its process
loses its own arm, and the others continue in a new process. Where it is not clear which state it
was, each of them continues alone. A script that ends before the rounds are full is started again.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median

from steptime.core.schema import SCHEMA
from steptime.levers.base import Lever
from steptime.measure.fold.host_lines import read_host
from steptime.measure.tried.trial_lines import (
    BlockTime,
    LeverLine,
    RankLines,
    TaggedUpdate,
    join_ranks,
    read_trial,
)
from steptime.record import files
from steptime.record.lines import Torn
from steptime.tune.search.bench import ComparisonResult, EpochGap, LiveRequest
from steptime.tune.search.budget import BLOCK_S, LONG_STEP_S
from steptime.tune.search.rounds.live_groups import COMPILE
from steptime.tune.trials.arms import (
    NOT_FINITE,
    TOO_SHORT,
    Arm,
    ExperimentResult,
    OpenRequest,
    cause_of,
)
from steptime.tune.trials.process_pairs import mean_others_cores
from steptime.tune.trials.trial_process import (
    LEVER_FAILED,
    TIME_LIMIT,
    TrialEnded,
    TrialProcess,
)
from steptime.tune.trials.trial_setting import describe_state
from steptime.tune.trials.trial_watch import TrialWatch, fold_ticks
from steptime.tune.values.study_values import Ending, State, TrialEnd

LEAST_BLOCK_S, MOST_BLOCK_S = 0.02, 0.3
"""A state that is far faster than the reference gets a block of its own length, within these."""

_SETTLE_SHARE = 8  # one step of settling, and one more for each so many of a long block
_WARM_STEPS, _WARM_S = 10, 1.0  # before the first experiment of a process
_LEAST_WARM_STEPS = 3
_LEAST_ROOM = 4  # steps: two blocks of one that counts, each with one of settling
_HURRIED_UPDATES = 5  # before the experiment of a short script: after four the guest writes facts
_AHEAD_S = 1.0  # how far ahead several ranks agree on the first step
_CHECK_ROUNDS = 3  # alone, to see whether it is this state that makes the loss NaN
_SLOW = 6.0  # times as long as expected is too long


class LiveTrials:
    """Keeps one process running across requests with the same fixed levers; `close` it."""

    def __init__(
        self,
        start: Callable[[State], TrialProcess],
        levers: Mapping[str, Lever],
        *,
        slack_s: float,
    ) -> None:
        """`slack_s` is what an experiment may take beyond what its steps should."""
        self._start = start
        self._levers = levers
        self._slack_s = slack_s
        self._trial: TrialProcess | None = None
        self._fixed: State = ()
        self._step_s = 0.0
        self._updates_a_step = 1.0
        self.epoch: EpochGap | None = None
        """Of the command as written, where the end of one was seen."""
        self._known_s: dict[str, float] = {}
        self._num_steps: int | None = None  # of a script that is over before it is warm
        self._num_experiments = 0
        self._end_s = math.inf  # when the request that is being answered should be over

    def close(self) -> None:
        """End the process that waits for the next request."""
        if self._trial is not None:
            self._trial.close()
            self._trial = None

    def compare(self, request: LiveRequest) -> ComparisonResult:
        """Answer a request."""
        if request.is_fresh or request.fixed != self._fixed:
            self.close()
            self._num_steps = None
        reference, *others = request.states
        rounds = request.num_rounds
        arms = [Arm(number=i, state=s, need=rounds) for i, s in enumerate(others)]
        asked = OpenRequest(arms=arms)
        most_s = math.inf if request.most_s is None else request.most_s
        self._end_s = time.monotonic() + most_s
        while asked.is_open and time.monotonic() < self._end_s:
            if not self._ensure(request.fixed, asked):
                break
            self._ask(reference, asked)
        return asked.freeze()

    def _ensure(self, fixed: State, asked: OpenRequest) -> bool:
        """See that a process runs that can be asked; False where none can be had."""
        while self._trial is None:
            has_room = self._num_steps is None or self._room() >= _LEAST_ROOM
            if not asked.may_start() or not has_room:
                asked.give_up(TOO_SHORT)
                return False
            self._fixed, self._num_experiments = fixed, 0
            self._trial = trial = self._start(fixed)
            if self._num_steps is not None:
                return True  # it is asked before it begins, for there is no time to warm up
            ended = self._wait(trial, is_warm)
            process = trial.watch.first
            steps_s = fold_ticks(process.ticks) if process is not None else []
            if process is not None and steps_s:
                self._step_s = median(steps_s[-_WARM_STEPS:])
                self._known_s = {_key_of(()): self._step_s}
                self._updates_a_step = len(process.ticks) / len(steps_s)
            if ended is not None:
                self.close()
                num_steps = len(steps_s)
                if ended.end is not TrialEnd.FINISHED or num_steps <= _LEAST_WARM_STEPS:
                    is_over = ended.end is TrialEnd.FINISHED
                    asked.give_up(TOO_SHORT if is_over else cause_of(ended))
                    return False
                self._num_steps = num_steps
        return True

    def _room(self) -> int:
        """Steps of a short script that blocks may be made of."""
        # Its last step ends no block, for nothing follows.
        before = math.ceil(_HURRIED_UPDATES / self._updates_a_step)
        return (self._num_steps or 0) - before - 1

    def _most_arms(self) -> int | None:
        """How many arms a process can have beside the reference, a block of each being due."""
        return None if self._num_steps is None else max(1, self._room() // 2 - 1)

    def _wait(
        self, trial: TrialProcess, is_done: Callable[[TrialWatch], bool]
    ) -> TrialEnded | None:
        is_over = False
        try:
            ended = trial.wait(is_done)
            is_over = True
        finally:
            if not is_over:
                self.close()
        return ended

    def _ask(self, reference: State, asked: OpenRequest) -> None:
        """One experiment with the arms whose turn it is."""
        arms = asked.next_arms()[: self._most_arms()]
        num_rounds = max([arm.need for arm in arms] + [_CHECK_ROUNDS if asked.is_solo else 1])
        seen = self._show([reference, *(arm.state for arm in arms)], num_rounds)
        for number in seen.failed_states:
            facts = {"error": seen.failed_states[number]}
            arms[number - 1].blame(Ending(end=TrialEnd.FAILED, reason=LEVER_FAILED, facts=facts))
        asked.take(arms, seen)
        if seen.ended is None and seen.is_finite:
            for arm in arms:
                arm.is_checked = True
            return
        self.close()
        if seen.ended is not None and seen.ended.end is TrialEnd.FINISHED:
            # The script was over: what is missing is asked of a new process, and from its first
            # steps on where most of them went by before the experiment.
            if 2 * len(seen.updates) / seen.updates_a_step < seen.num_steps:
                self._num_steps = seen.num_steps
            return
        cause = NOT_FINITE if seen.ended is None else cause_of(seen.ended)
        if len(arms) == 1:
            arms[0].blame(cause)
        elif (named := _named_by(seen, arms)) is not None:
            named.blame(cause)
        else:
            asked.go_on_alone(arms)

    def _show(self, states: Sequence[State], num_rounds: int) -> ExperimentResult:
        """Write an experiment down for the guest and wait for its end."""
        trial, number = self._trial, self._num_experiments
        assert trial is not None
        self._num_experiments += 1
        begun_s = trial.age_s
        steps_s = [self._known_s.get(_key_of(state), self._step_s) for state in states]
        block = block_steps(steps_s)
        if self._num_steps is not None:  # a round must fit, with its settling
            block = max(1, min(block, self._room() // len(states) - 1))
        settle = 1 + block // _SETTLE_SHARE if self._num_steps is None else 1
        if steps_s[0] > LONG_STEP_S:
            settle = 0
        num_rounds = self._rounds_in_time(num_rounds, (settle + block) * sum(steps_s))
        document = {
            "schema": SCHEMA,
            "experiment": number,
            "starts_at": self._starts_at(),
            "num_rounds": num_rounds,
            "settle_steps": settle,
            "block_steps": block,
            "seed": number,
            "states": [describe_state(state, self._levers) for state in states],
        }
        trial.note_levers(one.name for state in states for one in state)
        trial.show(json.dumps(document))
        expected_s = num_rounds * (settle + block) * sum(steps_s)
        most_s = begun_s + _SLOW * expected_s + self._slack_s * max(1, _num_compiled(states))
        limits = trial.limits
        if self._num_steps is not None:
            most_s += limits.start_s  # it has not begun yet
        trial.limits = replace(limits, total_s=most_s)
        ended = self._wait(trial, lambda watch: _has_ended(watch, number))
        trial.limits = limits
        ranks = [rank for rank in read_trial(trial.folder) if rank.updates(number)]
        blocks = join_ranks([rank.blocks(number) for rank in ranks])
        self._learn(states, blocks)
        updates = ranks[0].updates(number) if ranks else ()
        whole = _without_gaps(blocks, updates) if self.epoch is not None else ()
        between_s = _between_s(ranks, with_gaps=not whole)
        if self.epoch is not None and whole and between_s is not None:
            between_s += self.epoch.gap_s / (self.epoch.num_steps * self._updates_a_step)
        over = [end for rank in ranks if (end := rank.experiment_end(number)) is not None]
        return ExperimentResult(
            ended=ended,
            blocks=blocks,
            updates=updates,
            num_steps=round(trial.watch.num_updates / self._updates_a_step),
            updates_a_step=self._updates_a_step,
            is_finite=all(end.is_finite is not False for end in over),
            failed_states=_failed_states([line for rank in ranks for line in rank.levers], number),
            others_cores=_others_cores(trial, last_s=trial.age_s - begun_s),
            between_s=between_s,
            loop_blocks=whole or blocks,
        )

    def _rounds_in_time(self, num_rounds: int, round_s: float) -> int:
        """Of so many rounds those that fit into the request's time; one at least."""
        left_s = self._end_s - time.monotonic()
        if math.isinf(left_s):
            return num_rounds
        return max(1, min(num_rounds, math.floor(left_s / max(1e-9, round_s))))

    def _learn(self, states: Sequence[State], blocks: Sequence[BlockTime]) -> None:
        """How long a step takes in each state, for the length of later blocks."""
        for number, state in enumerate(states):
            own = [one.wall_s / one.num_updates for one in blocks if one.state == number]
            if own:
                self._known_s[_key_of(state)] = median(own) * self._updates_a_step

    def _starts_at(self) -> int:
        """The next step; for several ranks one that none of them has reached."""
        process = self._trial.watch.first if self._trial is not None else None
        if self._trial is None or process is None:
            return _HURRIED_UPDATES
        following = process.ticks[-1].number + 1
        if len({other.rank for other in self._trial.watch.processes}) == 1:
            return following
        num_steps = 2 + math.ceil(_AHEAD_S / max(1e-3, self._step_s))
        return following + math.ceil(num_steps * self._updates_a_step)


def block_steps(steps_s: Sequence[float]) -> int:
    """Steps of a block, from what a step takes in each state; the first is the reference."""
    reference_s, fastest_s = max(1e-6, steps_s[0]), max(1e-6, min(steps_s))
    wanted = max(BLOCK_S / reference_s, LEAST_BLOCK_S / fastest_s)
    return max(1, round(min(wanted, max(BLOCK_S, MOST_BLOCK_S) / reference_s)))


def _num_compiled(states: Sequence[State]) -> int:
    """States that torch compiles for, each for its own most of a minute."""
    return sum(any(one.name == COMPILE for one in state) for state in states)


def _key_of(state: State) -> str:
    return repr([(one.name, sorted(one.settings.items())) for one in state])


def _failed_states(lines: Sequence[LeverLine], experiment: int) -> dict[int, str]:
    """States of an experiment that could not be entered, and why; the reference left out."""
    return {
        line.state: line.error
        for line in lines
        if line.error is not None and line.experiment == experiment and line.state
    }


def _named_by(seen: ExperimentResult, arms: Sequence[Arm]) -> Arm | None:
    """The one arm whose lever said that it failed, or that took most of the time."""
    ended = seen.ended
    if ended is None:
        return None
    if ended.reason == TIME_LIMIT:
        spent_s = [seen.wall_s(number) for number in range(1, len(arms) + 1)]
        slowest = max(range(len(arms)), key=lambda index: spent_s[index])
        return arms[slowest] if 2 * spent_s[slowest] > sum(spent_s) else None
    having = [arm for arm in arms if any(one.name == ended.lever for one in arm.state)]
    return having[0] if len(having) == 1 else None


def is_warm(watch: TrialWatch) -> bool:
    """Return whether the process steps at its own pace."""
    process = watch.first
    if process is None or len(process.ticks) <= _LEAST_WARM_STEPS:
        return False
    seen_s = process.ticks[-1].end_s - process.ticks[0].end_s
    return seen_s >= _WARM_S and (len(process.ticks) > _WARM_STEPS or seen_s >= 3 * _WARM_S)


def _without_gaps(
    blocks: Sequence[BlockTime], updates: Sequence[TaggedUpdate]
) -> tuple[BlockTime, ...]:
    """Blocks in which no epoch ended; none where that leaves less than half of them."""
    gaps = [one.number for one in updates if one.is_after_gap]
    found = tuple(
        block
        for block in blocks
        if not any(0 <= gap - block.first_number < block.num_updates for gap in gaps)
    )
    return found if 2 * len(found) >= len(blocks) else ()


def _between_s(ranks: Sequence[RankLines], *, with_gaps: bool) -> float | None:
    """Time between two updates that is no step's, of the rank that has most; None if not known."""
    known = [one.between_s(with_gaps=with_gaps) for one in ranks]
    found = [between_s for between_s in known if between_s is not None]
    return max(found) if found and len(found) == len(known) else None


def _has_ended(watch: TrialWatch, experiment: int) -> bool:
    process = watch.first
    return process is not None and experiment in process.experiments


def _others_cores(trial: TrialProcess, *, last_s: float) -> float | None:
    """Mean cores that others took over the last seconds of a trial."""
    samples = read_host(trial.folder / files.HOST, Torn()).samples
    begin_s = samples[-1].t_unix_s - last_s if samples else 0.0
    return mean_others_cores([sample for sample in samples if sample.t_unix_s >= begin_s])
