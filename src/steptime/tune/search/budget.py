"""The budget of a study: what a question will cost, what is left, and when a one-off cost pays off.

In: the time left after each answer. Out: a prediction of what the next question costs, made from
the last questions of its kind, and whether it may be asked. Nothing here reads a clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

RESERVED_FRACTION = 1 / 3
"""Of the budget, kept for the proof: quality and confirmation."""

BLOCK_S = 0.075
"""Length of a live block: between 50 and 100 ms the noise of a busy machine cancels best."""

STRETCH_S, STRETCH_STEPS = 1.0, 3
"""Of each of two kept processes in a pair: as long as this, and so many steps."""

LONG_STEP_S = 0.5
"""Above it a block begins without a step of settling: what a change of levers leaves behind
takes milliseconds, and a step more in each block would take half of the budget."""

COMPILE_S = 30.0
"""First guess of a compilation where nobody counted operators; 10 to 90 s were measured."""

COMPILE_START_S, COMPILE_OPERATOR_S = 10.0, 0.03
"""First guess where they were counted: torch's compiler starts, and each operator of a step takes
so long on a core. A compilation that was seen replaces both guesses."""

LEAST_COMPILE_S, MOST_COMPILE_S = 15.0, 180.0
"""Bounds of that guess."""

AGAIN_SHARE = 0.25
"""Of a compilation, what it takes in each further process: trials share what torch's compiler
keeps. 0.06 to 0.08 were measured for a small convnet; what was seen replaces the guess."""

RUNS_A_JUDGEMENT = 5
"""First guess: the command twice, the candidate, and three perturbed runs, each a little shorter
than its steps and a start say; the one in float64 is short."""

RUNS_OF_REPEATS = 2
"""Of them, what the perturbed ones take: a first state of another roundoff takes them again."""

RESERVED_JUDGEMENTS = 1.2
"""More is kept than a judgement takes, because a judgement without its confirmation is wasted."""

LEAST_JUDGED, MOST_JUDGED = 20, 200
JUDGED_SHARE = 1 / 60
"""Of the budget, for the steps of one whole run."""

MOST_RESERVED = 0.6
"""Of the budget: where whole runs cost so much, fewer levers are tried, but some are."""

ASSUMED_BUDGETS = 3
"""A run of unknown length is assumed to last as long as three budgets: nobody tunes for longer
than a third of the run itself."""


class BudgetLedger:
    """The time left, and what each kind of question costs.

    `reserve_s` may not be spent yet; the proof lowers it. `proof_s` is what the confirmation of a
    state takes that was seen to be faster and as good: it is kept whatever else is open. Once the
    ledger `is_released`, no share is kept for what comes later; once it `is_closed`, nothing more
    is asked. `later_s` was granted by later calls of the same study: it is spent where the study
    would end without it.
    """

    def __init__(self, budget_s: float, *, later_s: Sequence[float] = ()) -> None:
        self.budget_s = budget_s
        self.left_s = budget_s
        self.reserve_s = budget_s * RESERVED_FRACTION
        self.proof_s = 0.0
        self.is_closed = False
        self.is_released = False
        self.startup_s = 0.0
        self.run_s = 0.0
        self._later_s = list(later_s)
        self._whole_run_s = 0.0
        self._block_s = BLOCK_S
        self._pair_s: float | None = None
        self._kept_pair_s = 2 * STRETCH_S
        self._quality_run_s: float | None = None
        self._compile_s = COMPILE_S
        self._has_compiled = False
        self._again_share: float | None = None

    def spend(self, left_s: float) -> float:
        """Note the time left after an answer, of all that was granted; what it took [s]."""
        left_s -= math.fsum(self._later_s)
        spent, self.left_s = max(0.0, self.left_s - left_s), left_s
        return spent

    @property
    def granted_s(self) -> float:
        """The time left with all that later calls granted [s]."""
        return self.left_s + math.fsum(self._later_s)

    def extend(self) -> bool:
        """Take in what the next call granted; False where there is none."""
        if not self._later_s:
            return False
        more_s = self._later_s.pop(0)
        self.budget_s += more_s
        self.left_s += more_s
        return True

    def observed(
        self,
        spent_s: float,
        *,
        startup_s: float,
        step_s: float | None,
        num_operators: int | None = None,
    ) -> None:
        """Learn from the baseline: its start, its step, its whole run, what there is to compile."""
        self.startup_s, self.run_s = startup_s, spent_s
        if num_operators is not None:
            guess_s = COMPILE_START_S + COMPILE_OPERATOR_S * num_operators
            self._compile_s = max(LEAST_COMPILE_S, min(guess_s, MOST_COMPILE_S))
        if step_s is not None:
            self._whole_run_s = startup_s + judged_updates(step_s, self.budget_s) * step_s
            settle_s = step_s if step_s <= LONG_STEP_S else 0.0
            self._block_s = settle_s + max(step_s, BLOCK_S)
            self._kept_pair_s = 2 * (step_s + max(STRETCH_S, STRETCH_STEPS * step_s))

    def compilation(self) -> float:
        """Predicted cost of compiling once [s]."""
        return self._compile_s

    def learn_compilation(self, spent_s: float) -> None:
        """Learn what a compilation cost: the longest one seen."""
        self._compile_s = max(spent_s, self._compile_s if self._has_compiled else 0.0)
        self._has_compiled = True

    def compilations(self, compile_s: float, num_processes: int) -> float:
        """Predicted cost of compiling the same in so many processes, one after the other [s]."""
        share = AGAIN_SHARE if self._again_share is None else self._again_share
        return compile_s * (1 + share * (num_processes - 1)) if num_processes else 0.0

    def learn_again(self, share: float) -> None:
        """Learn which share of its first compilation a state took again: the largest seen."""
        self._again_share = min(1.0, max(share, self._again_share or 0.0))

    def blocks(self, num_blocks: int, *, num_starts: int, num_compiles: int = 0) -> float:
        """Predicted cost of live blocks [s]."""
        starts_s = num_starts * self.startup_s
        return starts_s + num_compiles * self._compile_s + num_blocks * self._block_s

    def learn_blocks(self, spent_s: float, num_blocks: int, *, num_starts: int) -> None:
        """Learn what a block cost; half of what it was thought to at least, for starts vary."""
        blocks_s = spent_s - num_starts * self.startup_s
        self._block_s = max(blocks_s / max(1, num_blocks), self._block_s / 2)

    def pairs(self, num_pairs: int) -> float:
        """Predicted cost of pairs of processes [s]."""
        return num_pairs * (2 * self.run_s if self._pair_s is None else self._pair_s)

    def kept_pairs(self, num_pairs: int, *, num_starts: int) -> float:
        """Predicted cost of pairs of stretches of two kept processes [s]."""
        return num_starts * self.startup_s + num_pairs * self._kept_pair_s

    def learn_kept_pairs(self, spent_s: float, num_pairs: int, *, num_starts: int) -> None:
        """Learn what such a pair cost; half of what it was thought to at least."""
        pairs_s = spent_s - num_starts * self.startup_s
        self._kept_pair_s = max(pairs_s / max(1, num_pairs), self._kept_pair_s / 2)

    def learn_pairs(self, spent_s: float, num_pairs: int) -> None:
        """Learn what a pair of processes cost."""
        self._pair_s = spent_s / max(1, num_pairs)

    def learn_compiling_pairs(
        self, spent_s: float, num_pairs: int, compile_s: float, *, is_first: bool
    ) -> None:
        """Learn what compiling again cost one process of each pair; the rest of a pair is known.

        Args:
            spent_s: what the pairs took together [s].
            num_pairs: how many they were.
            compile_s: what compiling took once [s].
            is_first: the first one of them found nothing that was compiled before.
        """
        compiled_s = spent_s - self.pairs(num_pairs) - (compile_s if is_first else 0.0)
        num_again = num_pairs - is_first
        if num_again > 0:
            self.learn_again(compiled_s / compile_s / num_again)

    def judgement(self, num_runs: int = RUNS_A_JUDGEMENT) -> float:
        """Predicted cost of judging one state's quality in so many whole runs [s]."""
        return num_runs * (self._quality_run_s or self._whole_run_s or self.run_s)

    def keep_for_proof(self, confirmation_s: float, *, judgement_s: float | None = None) -> None:
        """Keep what a judgement and a confirmation should cost, where a third is too little.

        What was released for what is open stays so.
        """
        if self.is_released:
            return
        judge_s = self.judgement() if judgement_s is None else judgement_s
        needed_s = RESERVED_JUDGEMENTS * judge_s + confirmation_s
        self.reserve_s = max(self.reserve_s, min(needed_s, MOST_RESERVED * self.budget_s))

    def learn_judgement(self, spent_s: float, num_runs: int = RUNS_A_JUDGEMENT) -> None:
        """Learn what a whole run cost; half of the guess at least, for a bad state fails early."""
        before_s = self._quality_run_s or self._whole_run_s
        self._quality_run_s = max(spent_s / num_runs, before_s / 2)

    def available(self, *, keep: float = 0.0) -> float:
        """What may be spent now, the reserve and a share of the rest left alone [s]."""
        if self.is_closed:
            return 0.0
        share = 0.0 if self.is_released else keep
        kept_s = self.reserve_s + share * self.budget_s * (1 - RESERVED_FRACTION)
        kept_s = max(kept_s, self.proof_s)
        return max(0.0, min(self.left_s, self.left_s - kept_s))

    def all_but(self, most_s: float) -> float:
        """The share of the search's time to keep where something may take so much [s]."""
        rest_s = self.left_s - self.reserve_s - most_s
        return max(0.0, rest_s / (self.budget_s * (1 - RESERVED_FRACTION)))

    def affords(self, cost_s: float, *, keep: float = 0.0) -> bool:
        """Whether something may be asked now, the reserve and a share of the rest left alone."""
        is_open = not self.is_closed and self.left_s > 0
        return is_open and cost_s <= self.available(keep=keep)


def judged_updates(step_s: float, budget_s: float) -> int:
    """How many updates a whole run records: as many as there is time for, 20 to 200."""
    return max(LEAST_JUDGED, min(round(JUDGED_SHARE * budget_s / step_s), MOST_JUDGED))


def break_even_steps(one_off_s: float, reference_step_s: float, gain: float) -> float:
    """Steps after which a one-off cost is earned; infinite where nothing is gained.

    Args:
        one_off_s: what is paid once [s].
        reference_step_s: a step without it [s].
        gain: log speedup over the reference.
    """
    saved_s = -math.expm1(-gain) * reference_step_s
    return one_off_s / saved_s if saved_s > 0 else math.inf


def length_of_run(run_steps: int | None, budget_s: float, step_s: float) -> int:
    """Steps over which one-off costs are earned: the run's own, or those assumed."""
    return round(ASSUMED_BUDGETS * budget_s / step_s) if run_steps is None else run_steps
