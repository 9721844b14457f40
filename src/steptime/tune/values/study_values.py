"""The values of a study: its trials, its verdict, its recipe.

A study asks whether levers make one command's training faster and leave it as good. What it tries
is a `State`: levers with their settings, in the order in which they were added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from steptime.core.evidence import Evidence
from steptime.core.interval import Interval
from steptime.core.note import Fact
from steptime.core.schema import SCHEMA
from steptime.tune.values.site_values import EditSites
from steptime.verify.values import Verdict
from steptime.verify.values.seed_runs import TrainingVerdict


class TrialEnd(str, Enum):
    """How a trial ended."""

    FINISHED = "finished"
    FAILED = "failed"
    OUT_OF_MEMORY = "out_of_memory"
    TIMED_OUT = "timed_out"
    PRUNED = "pruned"
    DIVERGED = "diverged"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How something that was tried ended: a process, an arm of a comparison, the whole of one.

    Attributes:
        end: how.
        reason: machine word: why.
        facts: the numbers and words for the sentence of the reason.
    """

    end: TrialEnd
    reason: str | None = None
    facts: Mapping[str, Fact] | None = None

    @property
    def is_well(self) -> bool:
        """Whether it came to its end as it should."""
        return self.end is TrialEnd.FINISHED

    @property
    def word(self) -> str:
        """The reason, or how it ended where no reason is known."""
        return self.reason or self.end.value


WELL = Ending(end=TrialEnd.FINISHED)


class StudyOutcome(str, Enum):
    """How a study ended; None in `Study.outcome` while it has not."""

    FASTER = "faster"
    NOTHING_HELPS = "nothing_helps"
    TOO_NOISY = "too_noisy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """One lever with its settings.

    Attributes:
        name: the lever.
        settings: its settings; empty for a lever that is a switch.
    """

    name: str
    settings: Mapping[str, str | int | float | bool]


State = tuple[Applied, ...]
"""What is on; the empty one is the command as written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FewPairs:
    """The middle of so few pairs that no interval can be given.

    Attributes:
        median: of the speedups.
        n: how many pairs.
    """

    median: float
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeRun:
    """How long a whole run takes, start and all; a forecast from parts that were measured apart.

    Attributes:
        num_steps: of the run.
        baseline: as written [s].
        tuned: with the recipe [s].
        is_measured: the command was run to its end, both ways in turns; else it is a forecast.
    """

    num_steps: int
    baseline: Interval
    tuned: Interval
    is_measured: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Unproven:
    """The most promising state that was seen and not proven.

    Attributes:
        state: what was on.
        speedup: over the command as written; None where no interval is known.
        few: what its pairs said where they carry no interval.
        missing_s: time beyond the budget that should settle it, by the noise that was seen [s];
            None where more time alone would not.
    """

    state: State
    speedup: Interval | None = None
    few: FewPairs | None = None
    missing_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One thing that was tried, and what came of it.

    `end`, `reason` and `facts` are its own and no `Ending`: the reason of a trial that ended well
    says why the search did not keep it.

    Attributes:
        number: number of the trial, in order; 0 is the command as written.
        state: what was on.
        end: how it ended.
        kind: `observe`, `live`, `process`, `confirm` or `quality`.
        speedup: over the reference it was compared with; None where it was not timed, or in too few
            pairs for an interval.
        few: what these few pairs said.
        reference: what it was compared with.
        quality: whether the training is as good, of a trial that was judged.
        reason: machine word: why it was not kept, or why it ended so.
        facts: the numbers for the sentence of the reason.
    """

    number: int
    state: State
    end: TrialEnd
    kind: str
    speedup: Interval | None = None
    few: FewPairs | None = None
    reference: State = ()
    quality: Verdict | None = None
    reason: str | None = None
    facts: Mapping[str, Fact] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One decision of the search, for `steptime show`.

    Attributes:
        code: what was decided, a machine word.
        lever: the lever that it is about.
        facts: the numbers and names behind it.
    """

    code: str
    lever: str | None = None
    facts: Mapping[str, Fact] | None = None


NEEDS_PROOF = "needs_proof_over_seeds"
"""Why a lever is not kept that changes the training, where such changes are allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotTried:
    """A lever that was not tried.

    Attributes:
        name: the lever.
        reason: why, a machine word.
        text: the lever's own sentence, where it has one.
        evidence: the numbers that it rests on.
        candidate: the recipe with it, which nothing has proven; of one that needs such a proof.
    """

    name: str
    reason: str
    text: str | None = None
    evidence: tuple[Evidence, ...] = ()
    candidate: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingScope:
    """The training that is tuned, where the command has several; the levers reach no other.

    Attributes:
        number: its number in the order of start, from 1.
        words: the words that its processes were started with.
        numbers: which of the processes with these words they are, in the order of start, from 0.
    """

    number: int
    words: tuple[str, ...]
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the search decides of a `Study`; the fields have the same meaning there.

    The search knows nothing of folders, dates or containment: `run_study` adds those.

    `reason` is a machine word where the outcome has one: docs/explanation/how-we-tune.md. Its
    `reason_facts` are the numbers for the sentence.
    """

    outcome: StudyOutcome | None
    recipe: State
    speedup: Interval | None
    noise_floor: float | None
    quality: Verdict | None
    baseline_step_s: float | None
    tuned_step_s: float | None
    sample_unit: str | None
    trials: tuple[Trial, ...]
    not_tried: tuple[NotTried, ...]
    choices: tuple[Choice, ...]
    break_even_steps: int | None = None
    reason: str | None = None
    reason_facts: Mapping[str, Fact] | None = None
    unproven: Unproven | None = None
    loop_speedup: Interval | None = None
    whole_run: WholeRun | None = None

    @property
    def claim(self) -> Interval | None:
        """What a user will see: the speedup of the loop where it is known, else of a step."""
        return self.speedup if self.loop_speedup is None else self.loop_speedup


@dataclass(frozen=True, slots=True, kw_only=True)
class Study(Found):
    """All trials of one `tune`, and what came of them.

    Attributes:
        study_id: name of the study's folder.
        command: the command as given.
        started_unix_s: its start, seconds since 1970.
        ended_unix_s: its end [s since 1970]; None while it has none.
        tier: how the trials were kept from harm: isolated, guarded or unsafe.
        outcome: what came of it; None while it is not done.
        recipe: what was proven, empty unless `faster`.
        speedup: of a step, of the recipe over the command as written, from the confirmation.
        loop_speedup: of the whole loop, from the same pairs: the time from the first to the last
            step with evaluations, checkpoints and the beginnings of epochs; None where it was not
            observed.
        whole_run: how long the run takes as written and with the recipe; None where its number of
            steps was not said.
        noise_floor: how far the study's own A/A interval reaches from no change, a fraction; of the
            time (wall or CPU) that judged the proof, else most of what was compared.
        quality: whether the training is as good with the recipe.
        baseline_step_s: time of a step of the command as written [s].
        tuned_step_s: time of a step with the recipe [s].
        sample_unit: what is counted: `samples` or `tokens`.
        trials: all that was tried, in order.
        not_tried: levers that were not tried.
        choices: why each thing was done, in order.
        tried_writes: what the script tried to write.
        break_even_steps: steps after which one-off costs (compile) are earned; None without any.
        is_interrupted: the user ended it early.
        tier_reasons: why no better tier was possible.
        tier_lacks: what nothing kept the trials from, as machine words: `network`, `sockets`,
            `races`, `files`, `memory`, `processes`.
        tried_connections: what the trials wanted to connect to, and could not.
        samples_per_step: of the command as written, in `sample_unit`s, over all ranks.
        device: what it trains on, as its first rank said.
        torch_version: version of torch in its first rank.
        reason: machine word that explains the outcome, where it needs an explanation.
        reason_facts: the numbers and words for the sentence of the reason.
        unproven: where nothing was proven, the most promising state that was seen.
        budget_s: all the time that calls of this study granted [s].
        training: the training of the command that was tuned, if one was named.
        sites: where in the source stands what levers change.
        seeds: what trainings over seeds said of the recipe, if that was asked for.
        options: the options of `steptime tune` as they were typed, to go on with the same.
        schema: version of the record.
    """

    study_id: str
    command: tuple[str, ...]
    started_unix_s: float
    ended_unix_s: float | None
    tier: str | None
    tried_writes: tuple[str, ...] = ()
    is_interrupted: bool = False
    tier_reasons: tuple[str, ...] = ()
    tier_lacks: tuple[str, ...] = ()
    tried_connections: tuple[str, ...] = ()
    samples_per_step: float | None = None
    device: str | None = None
    torch_version: str | None = None
    budget_s: float | None = None
    training: TrainingScope | None = None
    sites: EditSites | None = None
    seeds: TrainingVerdict | None = None
    options: tuple[str, ...] = ()
    schema: int = SCHEMA
