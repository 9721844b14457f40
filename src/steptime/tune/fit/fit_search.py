"""Decides whether a command fits and what is tried to make it fit, as a function of a `FitBench`.

In: a bench, the limit, the levers. Out: what was found. At most `MAX_RUNS` real runs are made under
the limit; each failure teaches the estimates, and the last one tries the strongest choice there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from steptime.core.note import Fact
from steptime.levers.base import Lever, Preserves
from steptime.tune.fit.batch_rates import factors_with_room, states_of, trials_of
from steptime.tune.fit.bench_answers import MACHINE_SHORT, BudgetSpentError, FitBench, Observed
from steptime.tune.fit.choose import MARGIN, FitChoice, Lessons, Option, cheapest, learn, smallest
from steptime.tune.fit.device_peak import device_parts, device_peak
from steptime.tune.fit.held_parts import (
    CONTEXT_BYTES,
    PROCESS_BYTES,
    growth_to_come,
    parts_at_peak,
    room_for_batch,
    total_of,
    with_largest,
)
from steptime.tune.fit.measures import as_measures, find_options, make_ground, step_s_of
from steptime.tune.fit.observed_peak import compare, describe_peak
from steptime.tune.fit.peak_forecast import (
    FAKE_STEP,
    describe_forecast,
    forecast_parts,
    peaks_of_ranks,
    with_forecast,
)
from steptime.tune.trials.children.forecast_child import CommandForecast
from steptime.tune.values.fit_values import BatchTrial, FitMeasure, FitPeak, FitRun, RankPeak
from steptime.tune.values.study_values import Applied, NotTried, State, TrialEnd
from steptime.verify.values import Outcome, Verdict

MAX_RUNS = 3
"""Real runs under the limit with levers; one of the command as written is not among them."""

PART, MACHINE = "part", "machine"
"""Where a limit comes from, if it was not given."""


@dataclass(slots=True, kw_only=True)
class FitFound:
    """What was found so far; `FitStudy` says what each field means.

    `limit_bytes` is there where the limit is that of its device. `is_on_device`: it trains on a
    CUDA device, whose memory is what counts.
    """

    limit_bytes: int | None = None
    fits: bool | None = None
    peak: FitPeak | None = None
    recipe: State = ()
    proven: Outcome | None = None
    quality: Verdict | None = None
    batch_factor: float | None = None
    measures: tuple[FitMeasure, ...] = ()
    not_tried: tuple[NotTried, ...] = ()
    runs: list[FitRun] = field(default_factory=list)
    short_bytes: int | None = None
    nearest: State = ()
    nearest_bytes: int | None = None
    fitted_step_s: float | None = None
    ranks: tuple[RankPeak, ...] = ()
    larger_batches: tuple[BatchTrial, ...] = ()
    batch_reason: str | None = None
    batch_facts: Mapping[str, Fact] | None = None
    is_on_device: bool = False
    reason: str | None = None
    reason_facts: Mapping[str, Fact] | None = None


Tell = Callable[[FitFound], None]


class FitSearch:
    """A search while it goes on.

    Args:
        bench: what runs the command.
        levers: those that may be used.
        limit_bytes: the limit.
        origin: where the limit comes from, as in `FitStudy.limit_from`. `part`: a device that is
            not here, whose context stands for the process. `machine`: what is free; of a training
            on a device, that device's memory.
        excluded: names of levers that the user left out.
        tell: called with what was found, after each run.
    """

    def __init__(
        self,
        bench: FitBench,
        levers: Sequence[Lever],
        limit_bytes: int,
        *,
        origin: str = "given",
        excluded: Sequence[str] = (),
        tell: Tell = lambda found: None,
    ) -> None:
        self._bench = bench
        self._levers = levers
        self._limit = limit_bytes
        self._is_of_device = origin == PART
        self._excluded = excluded
        self._tell = tell
        self._lessons = Lessons()
        self._is_free = origin == MACHINE
        self._context_bytes = 0  # on a device
        self._num_tried = 0  # runs under the limit, with levers
        self._room = limit_bytes  # less than the limit where the machine has less
        self.found = FitFound()

    def go(self) -> FitFound:
        """Observe, compare with the limit, and make it fit if it does not, while time is left."""
        try:
            return self._go()
        except BudgetSpentError:
            self.found.reason = "budget"
            return self.found

    def _go(self) -> FitFound:
        found, observed = self.found, self._bench.observe()
        ending = observed.baseline.ending
        died = ending.end is TrialEnd.OUT_OF_MEMORY
        if not ending.is_well and not died:
            found.reason, found.reason_facts = ending.word, ending.facts
            return found
        forecast = self._bench.forecast() if died else None
        if forecast is not None and forecast.memory.peak is not None:
            observed = replace(observed, baseline=with_forecast(observed.baseline, forecast))
            found.ranks = peaks_of_ranks(forecast)
        if observed.baseline.facts.device != "cpu":
            on_device = self._look_at_device(observed)
            if on_device is None:
                found.reason = "on_a_device"
                return found
            observed = on_device
        parts, found.peak = self._peak(observed, forecast, died=died)
        self._room = self._limit
        if died and observed.cap_bytes:
            self._room = min(self._limit, observed.cap_bytes - self._beside_bytes)
        least = 0 if self._is_of_device else self._needed_at_least(observed)
        found.fits = compare(found.peak, self._limit, least_bytes=least)
        self._tell(found)
        if not died:
            found.batch_factor = room_for_batch(parts, self._limit * (1 - MARGIN))
        if found.fits is None and not died:
            found.fits = self._run_as_written()
        if found.fits:
            if not died:
                self._use_what_is_free(observed)
                self._try_larger_batches(observed, parts)
            return found
        ground = make_ground(observed.baseline, parts)
        options, found.not_tried = find_options(ground, self._levers, excluded=self._excluded)
        found.measures = as_measures(parts, options)
        self._make_fit_and_judge(parts, options, can_run_as_written=not died)
        return found

    def _look_at_device(self, observed: Observed) -> Observed | None:
        """What was observed, in bytes of the device; None where its allocator did not say.

        Without a limit of the user's, it is what the device has.
        """
        held = device_peak(observed.baseline.measurement.memory)
        if held is None:
            return None
        self.found.is_on_device, self._context_bytes = True, held.context_bytes
        if self._is_free:
            self._limit = self.found.limit_bytes = held.total_bytes
        return replace(
            observed, peak_bytes=held.peak_bytes, cap_bytes=held.total_bytes + self._beside_bytes
        )

    def _peak(
        self, observed: Observed, forecast: CommandForecast | None, *, died: bool
    ) -> tuple[dict[str, int], FitPeak]:
        """The parts of the peak, and the peak: of a forecast where the command died of memory."""
        if forecast is not None and forecast.memory.peak is not None:
            least = self._needed_at_least(observed)
            is_of_device = self._is_of_device or self.found.is_on_device
            parts = forecast_parts(forecast, least_bytes=least, is_of_device=is_of_device)
            peak = describe_forecast(
                forecast.memory, parts, least_bytes=least, is_of_device=is_of_device
            )
            return parts, peak
        measurement = observed.baseline.measurement
        held = device_peak(measurement.memory) if self.found.is_on_device else None
        if held is not None:
            parts = device_parts(measurement.memory, held)
            return parts, describe_peak(observed, parts, died=died, has_context=True)
        more_bytes = 0 if died else growth_to_come(measurement)
        parts = parts_at_peak(
            with_largest(measurement) if more_bytes else measurement.memory,
            observed.peak_bytes + more_bytes,
            is_of_device=self._is_of_device,
        )
        peak = describe_peak(observed, parts, died=died)
        unknown = () if forecast is None else forecast.memory.unknown
        return parts, replace(peak, unknown=(*peak.unknown, *unknown))

    def _needed_at_least(self, observed: Observed) -> int:
        """What a command that died needed at least [bytes], of what the limit counts.

        Where the machine itself ran short, others may have taken the rest of what it could have
        had; on a device, its allocator says what it had.
        """
        was_short = observed.baseline.ending.reason == MACHINE_SHORT
        has_more = was_short or self.found.is_on_device
        return observed.peak_bytes if has_more else observed.cap_bytes

    @property
    def _beside_bytes(self) -> int:
        """What a process needs here besides what the limit of a device counts.

        On the device itself, the context is beside what torch's allocator may hold.
        """
        if self.found.is_on_device:
            return -self._context_bytes
        return PROCESS_BYTES - CONTEXT_BYTES if self._is_of_device else 0

    def _run_as_written(self) -> bool:
        """Whether the command itself trains under the limit."""
        run = self._run((), self.found.peak.estimate if self.found.peak else 0)
        self.found.proven = Outcome.PASS if run.is_well else Outcome.FAIL
        return run.is_well

    def _use_what_is_free(self, observed: Observed) -> None:
        """Undo checkpointing where its activations have room, and keep that if it trains as well.

        How much faster that is, the run says; a recipe that is not faster is not kept.
        """
        found, baseline = self.found, observed.baseline
        lever = next((one for one in self._levers if one.name == "no_checkpointing"), None)
        room = self._limit - (found.peak.high if found.peak else 0)
        facts = replace(baseline.facts, available_bytes=room, free_device_bytes=room)
        if lever is None or lever.name in self._excluded or lever.applies(facts) is not None:
            return
        size = facts.checkpointed_bytes or 0
        state = (Applied(name=lever.name, settings={}),)
        run = self._run(state, (found.peak.estimate if found.peak else 0) + size)
        before_s = step_s_of(baseline.measurement)
        if not run.is_well or run.step_s is None or before_s is None or run.step_s >= before_s:
            return
        found.proven, found.recipe, found.fitted_step_s = Outcome.PASS, state, run.step_s
        self._judge(can_run_as_written=True)
        if found.quality is None or found.quality.outcome is not Outcome.PASS:
            found.recipe, found.fitted_step_s, found.reason = (), None, None

    def _try_larger_batches(self, observed: Observed, parts: Mapping[str, float]) -> None:
        """Measure whether the rate still rises with the batch, where memory is free for it."""
        found, baseline = self.found, observed.baseline
        factors, why = factors_with_room(
            found.batch_factor, baseline.facts, excluded=self._excluded
        )
        if self._is_of_device:
            factors, why = (), ("other_device", None)
        if why is not None:
            found.batch_reason, found.batch_facts = why
            return
        limit = None if found.is_on_device else self._room + self._beside_bytes
        result = self._bench.compare_batches(states_of(factors, baseline.facts), limit)
        found.larger_batches = trials_of(result, factors, baseline, parts)
        self._tell(found)

    def _make_fit_and_judge(
        self, parts: Mapping[str, float], options: Sequence[Option], *, can_run_as_written: bool
    ) -> None:
        """Look for a choice that trains under the limit and as well as the command as written.

        A lever to which a worse training is traced is left out, and the search goes on without it;
        where that finds nothing, the first choice stays with its judgement.
        """
        found, first = self.found, None
        while (choice := self._make_fit(parts, options)) is not None:
            self._judge(can_run_as_written=can_run_as_written)
            if found.quality is None or found.quality.outcome is not Outcome.FAIL:
                return
            first = first or replace(found)
            guilty = self._trace(choice)
            if guilty is None:
                break
            options = [option for option in options if option.applied.name != guilty]
        if first is not None:
            found.recipe, found.fitted_step_s = first.recipe, first.fitted_step_s
            found.proven, found.quality, found.reason = first.proven, first.quality, first.reason
            found.nearest, found.nearest_bytes, found.short_bytes = (), None, None

    def _trace(self, choice: FitChoice) -> str | None:
        """Return the lever with which a choice trains worse; None if all give the same bits.

        The levers that may change numbers are halved, and the half that trains worse again.
        """
        suspects = [one.applied for one in choice.options if one.preserves is not Preserves.EXACT]
        while len(suspects) > 1:
            half, rest = suspects[: len(suspects) // 2], suspects[len(suspects) // 2 :]
            is_worse = self._bench.judge(tuple(half)).outcome is Outcome.FAIL
            suspects = half if is_worse else rest
        return suspects[0].name if suspects else None

    def _make_fit(self, parts: Mapping[str, float], options: Sequence[Option]) -> FitChoice | None:
        """Run choices under the limit until one trains; return that one."""
        found = self.found
        while self._num_tried < MAX_RUNS:
            choice = self._next(parts, options, is_last=self._num_tried == MAX_RUNS - 1)
            if choice is None:
                break
            self._num_tried += 1
            run = self._run(choice.state, choice.estimate_bytes)
            found.proven = Outcome.PASS if run.is_well else Outcome.FAIL
            if run.is_well:
                found.recipe, found.fitted_step_s, found.reason = choice.state, run.step_s, None
                return choice
            if run.end not in (TrialEnd.OUT_OF_MEMORY, TrialEnd.FAILED):
                found.reason, found.reason_facts = run.reason or run.end.value, run.facts
                break
            seen_bytes = self._needed(choice)
            learn(parts, choice, self._room, self._lessons, seen_bytes=seen_bytes)
        self._say_what_is_missing(parts, options)
        return None

    def _needed(self, choice: FitChoice) -> int:
        """What a choice had that failed [bytes], where the command runs here without the limit."""
        peak, is_on_device = self.found.peak, self.found.is_on_device
        if peak is None or peak.how == FAKE_STEP:
            return 0
        most = peak.high + self._beside_bytes
        seen = self._bench.run_under(choice.state, most, is_on_device=is_on_device, what="needs")
        return seen.peak_bytes or 0 if seen.ending.is_well else 0

    def _next(
        self, parts: Mapping[str, float], options: Sequence[Option], *, is_last: bool
    ) -> FitChoice | None:
        """The cheapest choice that should fit; the strongest one where it is the last to try."""
        strongest = smallest(parts, options, self._lessons)
        if strongest is None or strongest.estimate_bytes > self._room:
            return None
        fitting = cheapest(parts, options, self._room, self._lessons)
        return strongest if fitting is None or is_last else fitting

    def _say_what_is_missing(self, parts: Mapping[str, float], options: Sequence[Option]) -> None:
        found = self.found
        lessons = Lessons(shares=self._lessons.shares, unseen_bytes=self._lessons.unseen_bytes)
        nearest = smallest(parts, options, lessons)
        if nearest is not None and self._room < nearest.estimate_bytes <= self._limit:
            nearest = cheapest(parts, options, self._limit, lessons) or nearest
            found.nearest, found.nearest_bytes = nearest.state, nearest.estimate_bytes
            found.reason = "machine_too_small"
            return
        size = total_of(parts) if nearest is None else nearest.estimate_bytes
        found.nearest = () if nearest is None else nearest.state
        found.nearest_bytes = size
        found.short_bytes = size - self._limit if size > self._limit else None
        found.reason = found.reason or "does_not_fit"

    def _judge(self, *, can_run_as_written: bool) -> None:
        found = self.found
        if not can_run_as_written:
            found.reason = "cannot_run_as_written"
            return
        found.quality = self._bench.judge(found.recipe)
        if found.quality.outcome is not Outcome.PASS:
            found.reason = "quality"

    def _run(self, state: State, estimate_bytes: int) -> FitRun:
        found = self._bench.run_under(
            state, self._room + self._beside_bytes, is_on_device=self.found.is_on_device
        )
        run = FitRun(
            number=len(self.found.runs) + 1,
            state=state,
            estimate_bytes=estimate_bytes,
            end=found.ending.end,
            reason=found.ending.reason,
            facts=found.ending.facts,
            peak_bytes=found.peak_bytes,
            num_steps=found.num_steps,
            step_s=found.step_s,
        )
        self.found.runs.append(run)
        self._tell(self.found)
        return run
