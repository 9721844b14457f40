"""All that is known about one run, as one value: reports render it, and `--json` writes it.

It holds the values of the chain, and the figures that readers would have to compute from them.
`app.describe_run` makes it; this module puts it into its envelope.
"""

from __future__ import annotations

from dataclasses import dataclass

from steptime.core.interval import Interval
from steptime.core.process_end import RunState
from steptime.diagnose.values.finding import Diagnosis
from steptime.diagnose.values.reach_values import Roofline, Waterfall
from steptime.diagnose.values.utilization_values import Utilization
from steptime.measure.values.measurement import Measurement
from steptime.plan.values import MemoryFit, ModelWork
from steptime.report.document.envelope import Envelope, ErrorItem, enclose
from steptime.report.words.run.outliving_words import describe_outliving


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSums:
    """The work of a step, and how much of it is useful.

    Attributes:
        total: forward, backward and recomputed work; null where it was not counted [FLOP].
        model_flops: forward and backward work, which is what MFU counts; null likewise [FLOP].
        is_complete: whether the count is proven to be whole; where it is false, these sums are
            lower bounds; null where nothing is known of it.
        useful_fraction: share of the positions of the batches that are no padding; null where
            nothing told of it.
        useful_work_fraction: share of the work that is done for these positions, by the rule in
            docs/explanation/padding.md; null likewise.
        useful_mfu: MFU without the work on padding; null where either is not known.
        tokens_per_s: tokens of the models' inputs in a second, with padding, over all ranks; null
            where inputs are no tokens [1/s].
        useful_tokens_per_s: the same without padding [1/s].
    """

    total: int | None
    model_flops: int | None
    is_complete: bool | None = None
    useful_fraction: float | None = None
    useful_work_fraction: float | None = None
    useful_mfu: float | None = None
    tokens_per_s: float | None = None
    useful_tokens_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """What the steps train on in a second, over all ranks, without what lies between steps.

    Attributes:
        unit: `tokens/s` (with padding), `images/s` or `samples/s`.
        rate: over the mean step [1/s]; its interval is as wide as that of the step time.
        mean_step_s: the mean step, without its outermost hundredths [s].
    """

    unit: str
    rate: Interval
    mean_step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSums:
    """Sums over the whole time of a run; `measurement.wall_time` has its parts.

    Attributes:
        wall_s: wall time of the run [s].
        useful_s: time of the steps that trained [s]: those whose numbers were finite and whose
            update was made, without what warm-up and stalls took beyond usual steps.
        goodput_fraction: `useful_s` over `wall_s`; null where no time passed.
        is_open: whether no end of the run is known, so that `wall_s` ends with the last update.
        price_per_h: what an hour of the machine costs, as `--hourly-price` says; null without it.
        cost: what the run cost, in the same currency.
        cost_beside: how much of it was for anything else than steps that trained.
        energy_j: what the devices drew [J]; null where they do not tell.
    """

    wall_s: float
    useful_s: float
    goodput_fraction: float | None
    is_open: bool = False
    price_per_h: float | None = None
    cost: float | None = None
    cost_beside: float | None = None
    energy_j: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingDocument:
    """What is known about one of several trainings of a command.

    Attributes:
        number: its number in the order of start, from 1.
        measurement: what was seen of it; `training` has its command, process and start.
        diagnosis: what holds it back.
    """

    number: int
    measurement: Measurement
    diagnosis: Diagnosis


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverTrial:
    """What `steptime tune` can try for one finding.

    Attributes:
        cause: the finding's.
        levers: the levers that may relieve it here, the likeliest first; none that is on.
        command: the command that tries just these levers, beside those of the recipe that the run
            trained with; null where there is none to try.
        at_most_speedup: what that can give at most; null where it is not known.
        bound_by: `finding`: that is the headroom of the finding; `phases`: it is the time of all
            phases that the levers can shorten, which is a loose bound.
        missing: why there is nothing to try: `no_lever` (no lever relieves it), `not_here` (those
            that do cannot act in this run), `in_recipe` (the run trained with them), or
            `failed` (the command failed).
        bench_command: the command that says which part of the input holds the training back, and
            what any loader could give at most; null for a finding that is not of the input.
    """

    cause: str | None
    levers: tuple[str, ...]
    command: str | None
    at_most_speedup: float | None = None
    bound_by: str | None = None
    missing: str | None = None
    bench_command: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeGain:
    """What the recipe of a run gave, against its proof and against a run without it.

    Attributes:
        step_s: median step of this run [s].
        written_step_s: step of the command as written, when the recipe was proven [s].
        proven_step_s: step with the recipe then [s]; null where the recipe does not say it.
        against_proof: `written_step_s` over the step of this run, with the interval of this run's
            median; null where the script, the machine or the levers are not those of the proof.
        plain_run_id: the newest finished run of the same command here without a recipe; null if
            there is none that can be compared.
        against_runs: the step of such runs over the step of this one and of earlier ones with the
            same recipe, as means.
        against_runs_low: the lower end of its 95 % interval; null where nothing shows how much
            equal runs differ.
        against_runs_high: the upper end, likewise.
        num_plain_runs: the number of runs without a recipe in it.
        num_recipe_runs: the number of runs with it.
        missing: why `against_proof` is null: `differs`, `levers_off`, `busy`,
            `no_step_times`; null where it is known.
    """

    step_s: float
    written_step_s: float | None = None
    proven_step_s: float | None = None
    against_proof: Interval | None = None
    plain_run_id: str | None = None
    against_runs: float | None = None
    against_runs_low: float | None = None
    against_runs_high: float | None = None
    num_plain_runs: int = 0
    num_recipe_runs: int = 0
    missing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDocument:
    """What is known about one run; of a command with several trainings, what is known of one.

    Attributes:
        measurement: what was seen.
        diagnosis: what holds the run back; null where it has no steps to judge.
        work: sums over `measurement.count`, and the useful part; null where the work was not
            counted and nothing told of padding.
        run: sums over the whole time of the run; null where no step was seen.
        mfu: model FLOP utilization: forward and backward over the peak of the device.
        hfu: hardware FLOP utilization, with what activation checkpointing computes again.
        model_work: the work by parameter and token, and by which convention; null where the work or
            the parameters are not known.
        memory_fit: what the parts of `measurement.memory` add up to, and what would free some of
            it; null where no process reported its memory.
        roofline: the operators of a step under what the machine reaches.
        waterfall: where the time of a step went, from what the machine reaches.
        trainings: every training of the command in the order of start, if there are several; the
            other keys are those of the one that was asked for, or else of the longest. It is empty
            where the command has one training, which the other keys describe.
        trials: what `steptime tune` can try for each finding of `diagnosis`, in their order.
        recipe_gain: what the recipe gave; null without one, or without a step time.
        throughput: tokens, images or samples per second; null where none of them is known.
    """

    measurement: Measurement
    diagnosis: Diagnosis | None
    work: WorkSums | None
    mfu: Utilization
    hfu: Utilization
    model_work: ModelWork | None
    memory_fit: MemoryFit | None
    roofline: Roofline | None
    waterfall: Waterfall | None
    run: RunSums | None = None
    trainings: tuple[TrainingDocument, ...] = ()
    trials: tuple[LeverTrial, ...] = ()
    recipe_gain: RecipeGain | None = None
    throughput: Throughput | None = None


def run_envelope(document: RunDocument, *, command: str, exit_code: int) -> Envelope[RunDocument]:
    """Return the envelope of a run; if the script failed, it is partial and says so."""
    errors = _end_errors(document.measurement)
    return enclose(command, document, exit_code=exit_code, errors=errors)


def _end_errors(measurement: Measurement) -> tuple[ErrorItem, ...]:
    """Return what keeps a run from being whole: it failed, was killed, or has no known end."""
    end, stopped = measurement.end, measurement.stopped
    if stopped is not None:
        code, message = "gate_not_met", f"--stop-on {stopped.reason} ended it: {stopped.finding}"
    elif end.state is RunState.FAILED and end.exit_code is None:
        code, message = "script_failed", "an exception ended the training"
    elif end.state is RunState.FAILED:
        code, message = "script_failed", f"the script ended with exit code {end.exit_code}"
    elif end.state is RunState.KILLED and end.signal is None:
        code, message = "script_killed", "the training was killed, crashed, or left by os._exit"
    elif end.state is RunState.KILLED:
        code, message = "script_killed", f"the script was killed by signal {end.signal}"
    elif measurement.outliving:
        code, message = "run_unfinished", describe_outliving(measurement.outliving)
    elif end.state is not RunState.FINISHED:
        code, message = "run_unfinished", "the run has not ended, or its end was not seen"
    else:
        return ()
    return (ErrorItem(code=code, message=message),)
