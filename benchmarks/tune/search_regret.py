"""How much slower than the best are the parameters that a search finds, beside Optuna alone.

    OMP_NUM_THREADS=1 python benchmarks/tune/search_regret.py --seeds 10 --save
    OMP_NUM_THREADS=1 python benchmarks/tune/search_regret.py --real 120 --save

Two small trainings in numpy (a network on made-up digits, a matrix factorization), run for real:
each evaluation comes from the weights that were trained with that seed. Simulated is the clock
alone: a step counts so many seconds by its batch, and a run's machine is up to a few percent faster
or slower, so that the figures do not depend on who else uses this computer. Both searches have the
same clock, the same budget, the same ranges, and a run that reaches the target ends for both.

Ours is the whole of `steptime sweep` but for the contained child: Optuna's sampler, `seek`'s
rules, repeats and new seeds. The other is what one writes with Optuna: TPE, its median pruner, the
time to the target as the objective, the best trial as the answer. Each answer is then measured
with 40 seeds that neither search had. Regret is its mean log time less that of the best parameters
that anybody found, both by such seeds, in percent of the best time. An answer does not hold if it
misses the target in one of ten of those seeds, or is slower than its rival (the second best of the
same search) by more than a tenth. `--real` searches the network once as a process on the clock of
the wall, by the command itself. Results go to benchmarks/results/search_regret.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy
import optuna
from _search_trainings import START_S, Values, factors, network, step_s

from steptime.app.search.search import SearchAsked, seek
from steptime.app.search.seek_sampler import CandidateSampler
from steptime.app.search.sought_trial import SoughtTrial
from steptime.seek.pace import reached_at, why_stop
from steptime.seek.seek_answer import answer_of
from steptime.seek.sought_parameters import parse_parameters
from steptime.seek.values.seek_values import SeekEnd, SeekQuestion, SeekRun

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import cpu_name, stamp

RESULTS = Path(__file__).resolve().parents[1] / "results" / "search_regret.json"
FRESH_SEEDS = range(5_000, 5_040)
SLOWER_THAN_RIVAL = 1.1
LEAST_REACHED = 0.9
CLOCK_SD = 0.03
"""Spread of the log of a machine's speed from run to run."""


class Script:
    """A training, what is searched, the target, the budget, and its clock."""

    def __init__(
        self,
        name: str,
        train: Callable[[Values, int], Iterator[tuple[int, float]]],
        parameters: tuple[str, ...],
        *,
        target: float,
        budget_s: float,
    ) -> None:
        self.name, self.parameters = name, parse_parameters(parameters)
        self.target, self.budget_s = target, budget_s
        self._train = train

    def evaluations(self, values: Values, seed: int) -> Iterator[tuple[float, float]]:
        """Yield when each evaluation comes on the simulated clock, and the metric."""
        # A run that is made again has the same seed and another clock, as in the world.
        chance = numpy.random.default_rng([seed, zlib.crc32(repr(sorted(values.items())).encode())])
        speed = math.exp(chance.normal(0, CLOCK_SD))
        each_s = step_s(values) * speed
        with numpy.errstate(all="ignore"):
            for step, value in self._train(values, seed):
                yield START_S + step * each_s, value

    @cache  # noqa: B019
    def time_s(self, values: tuple[tuple[str, str], ...], seed: int) -> float | None:
        """Return the time to the target with a seed."""
        for at_s, value in self.evaluations(dict(values), seed):
            if not math.isfinite(value):
                return None
            if value <= self.target:
                return at_s
        return None


SCRIPTS = (
    Script(
        "network",
        network,
        ("lr=1e-3..1:log", "bs=8,16,32,64,128", "momentum=0..0.95"),
        target=0.42,
        budget_s=150.0,
    ),
    Script(
        "factors",
        factors,
        ("lr=1e-3..1:log", "bs=16,32,64,128,256", "decay=1e-4..1:log"),
        target=0.85,
        budget_s=250.0,
    ),
)


# --- the two searches ----------------------------------------------------------------------


class ScriptedMaker:
    """Makes runs on the simulated clock, with the rule that the real one has."""

    num_machines = 1

    def __init__(self, script: Script, offset: int) -> None:
        self._script, self._offset = script, offset
        self._waiting: list[SoughtTrial] = []

    def start(self, trial: SoughtTrial) -> None:
        """Note the run."""
        self._waiting.append(trial)

    def next_ended(self) -> SeekRun:
        """Make it."""
        trial = self._waiting.pop(0)
        at_s: list[float] = []
        values: list[float] = []
        end, elapsed_s = SeekEnd.FINISHED, 0.0
        coming = self._script.evaluations(trial.parameters, self._offset + trial.seed)
        for came_s, value in coming:
            elapsed_s = min(came_s, trial.rule.limit_s)
            if came_s <= trial.rule.limit_s:
                at_s.append(came_s)
                values.append(value)
            found = why_stop(trial.rule, at_s, values, elapsed_s=elapsed_s)
            if found is not None:
                end = found
                break
        reached = reached_at(at_s, values, self._script.target, is_better_down=True)
        return SeekRun(
            number=trial.number,
            candidate=trial.candidate,
            parameters=trial.parameters,
            seed=trial.seed,
            role=trial.role,
            end=end,
            seconds=elapsed_s,
            at_s=tuple(at_s),
            values=tuple(values),
            time_to_target_s=reached if end is SeekEnd.REACHED else None,
        )

    def close(self) -> None:
        """Do nothing."""


def search_ours(script: Script, seed: int) -> dict[str, object]:
    """Search as `steptime sweep` does."""
    question = SeekQuestion(
        parameters=script.parameters, target=script.target, budget_s=script.budget_s
    )
    asked = SearchAsked(question=question, command=(), metric="x", store=Path())
    runs = seek(
        asked,
        (),
        sampler=CandidateSampler(script.parameters, seed=1000 * seed),
        maker=ScriptedMaker(script, 10_000 * (seed + 1)),
        keep=lambda _: None,
        heard=lambda *_: None,
    )
    found = answer_of(question, runs)
    rival = None
    if found.new_seeds is not None and found.new_seeds.rival is not None:
        rival = next(
            one.parameters for one in found.candidates if one.candidate == found.new_seeds.rival
        )
    return {
        "best": found.best,
        "rival": rival,
        "holds": found.holds,
        "promised_s": found.time_to_target_s,
        "num_trials": found.num_trials,
        "num_runs": found.num_runs,
        "spent_s": found.spent_s,
    }


class SpentError(Exception):
    """The budget is spent."""


def search_optuna(script: Script, seed: int) -> dict[str, object]:
    """Search as one does with Optuna alone: TPE, median pruner, the best trial is the answer."""
    left_s = script.budget_s
    texts: dict[int, dict[str, str]] = {}

    def objective(trial: optuna.Trial) -> float:
        nonlocal left_s
        values = {}
        for one in script.parameters:
            if one.choices:
                values[one.name] = trial.suggest_categorical(one.name, one.choices)
            else:
                value = trial.suggest_float(one.name, one.low, one.high, log=one.is_log)
                values[one.name] = f"{value:.5g}"
        texts[trial.number] = values
        last_s, began_s = 0.0, left_s
        run_seed = 10_000 * (seed + 1) + 1
        for number, (at_s, value) in enumerate(script.evaluations(values, run_seed)):
            if at_s > began_s:
                left_s = 0.0
                raise SpentError
            last_s, left_s = at_s, began_s - at_s
            if not math.isfinite(value):
                break
            if value <= script.target:
                return at_s
            trial.report(value, number)
            if trial.should_prune():
                raise optuna.TrialPruned
        return 5 * last_s  # a penalty for a run that did not reach it, as one would

    study = optuna.create_study(
        sampler=optuna.samplers.TPESampler(seed=seed), pruner=optuna.pruners.MedianPruner()
    )
    with suppress(SpentError):
        study.optimize(objective, n_trials=10_000)
    done = [t for t in study.trials if t.state is optuna.trial.TrialState.COMPLETE]
    done.sort(key=lambda trial: trial.value)
    return {
        "best": texts[done[0].number] if done else None,
        "rival": texts[done[1].number] if len(done) > 1 else None,
        "holds": True,  # it has no other answer
        "promised_s": done[0].value if done else None,
        "num_trials": len(study.trials),
        "num_runs": len(study.trials),
        "spent_s": script.budget_s - left_s,
    }


# --- what the answers are worth ------------------------------------------------------------


def fresh(script: Script, values: Values | None) -> tuple[float, float]:
    """Return mean log time over seeds that no search had, and the share that reached the target.

    A seed that misses counts with the whole length of the training and as much again: it is the
    regret that is wanted, not a time.
    """
    if values is None:
        return math.inf, 0.0
    key = tuple(values.items())
    times = [script.time_s(key, seed) for seed in FRESH_SEEDS]
    longest = 2 * max(at_s for at_s, _ in script.evaluations(values, 0))
    logs = [math.log(longest if one is None else one) for one in times]
    return statistics.fmean(logs), sum(one is not None for one in times) / len(times)


def judged(script: Script, found: dict[str, object]) -> dict[str, object]:
    """Add what the answer is worth."""
    log, reached = fresh(script, found["best"])
    rival_log, _ = fresh(script, found["rival"]) if found["rival"] else (math.inf, 0.0)
    is_slower = log > rival_log + math.log(SLOWER_THAN_RIVAL)
    return {**found, "log_time": log, "reached": reached, "stands": reached >= LEAST_REACHED
            and not is_slower}  # fmt: skip


def reference_log(script: Script, answers: list[Values]) -> float:
    """Return the least mean log time of all answers and of neighbors of the best of them."""
    best = min(answers, key=lambda one: fresh(script, one)[0])
    chance = numpy.random.default_rng(3)
    least = fresh(script, best)[0]
    for _ in range(30):
        near = dict(best)
        for one in script.parameters:
            if one.choices:
                place = one.choices.index(best[one.name]) + int(chance.integers(-1, 2))
                near[one.name] = one.choices[min(max(place, 0), len(one.choices) - 1)]
            else:
                value = float(best[one.name])
                value = (
                    value * math.exp(chance.normal(0, 0.3))
                    if one.is_log
                    else value + (chance.normal(0, 0.1) * (one.high - one.low))
                )
                near[one.name] = f"{min(max(value, one.low), one.high):.5g}"
        log = fresh(script, near)[0]
        if log < least:
            best, least = near, log
    return least


# --- once for real -------------------------------------------------------------------------


def real_command(values: Values, seed: object) -> list[str]:
    """Return the training as a command."""
    trainings = Path(__file__).resolve().parent / "_search_trainings.py"
    words = [word for name, value in values.items() for word in (f"--{name}", value)]
    return [sys.executable, str(trainings), "network", *words, "--seed", str(seed)]


class RealScript(Script):
    """The same training as a process, on the clock of the wall."""

    def evaluations(self, values: Values, seed: int) -> Iterator[tuple[float, float]]:
        """Yield when each evaluation comes; who stops early ends the process."""
        began_s = time.monotonic()
        process = subprocess.Popen(real_command(values, seed), stdout=subprocess.PIPE, text=True)
        try:
            for line in process.stdout:
                yield time.monotonic() - began_s, float(line.split()[-1])
        finally:
            process.kill()
            process.communicate()


def search_really(budget_s: float, num_fresh: int) -> dict[str, object]:
    """Search the network once with both, as processes, and time both answers with new seeds."""
    like = SCRIPTS[0]
    texts = ("lr=1e-3..1:log", "bs=8,16,32,64,128", "momentum=0..0.95")
    script = RealScript("network", network, texts, target=like.target, budget_s=budget_s)
    places = {one.name: f"{{{one.name}}}" for one in script.parameters}
    with tempfile.TemporaryDirectory() as folder:
        words = [word for text in texts for word in ("--param", text)]
        words += ["--metric", "val ([0-9.]+)", "--target", str(script.target)]
        words += ["--budget", f"{budget_s:.0f}s", "--store", folder, "--json"]
        command = [sys.executable, "-m", "steptime", "sweep", *words, "--"]
        command += real_command(places, "{seed}")
        said = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, check=False).stdout
    data = json.loads(said)["data"]
    theirs = search_optuna(script, 0)
    found = {}
    sides = {"steptime sweep": data["best"], "optuna": theirs["best"]}
    times: dict[str, list[float | None]] = {side: [] for side in sides}
    for seed in FRESH_SEEDS[:num_fresh]:
        for side, values in sides.items():  # in turns
            times[side].append(script.time_s(tuple(values.items()), seed))
    for side, values in sides.items():
        reached = [one for one in times[side] if one is not None]
        found[side] = {
            "best": values,
            "times_s": [None if one is None else round(one, 3) for one in times[side]],
            "geometric_mean_s": math.exp(statistics.fmean(map(math.log, reached))),
        }
    kept = ("holds", "time_to_target_s", "num_trials", "num_runs", "num_pruned", "spent_s")
    found["steptime sweep"] |= {name: data[name] for name in kept}
    found["optuna"] |= {name: theirs[name] for name in ("promised_s", "num_trials", "spent_s")}
    return {"budget_s": budget_s, **found}


def main() -> None:
    """Search with both, and print what the answers are worth."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--real", metavar="S", type=float, help="once for real, with S seconds")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if options.real is not None:
        real = {"load": os.getloadavg()[0], **search_really(options.real, 8)}
        print(json.dumps(real, indent=1))
        if options.save:
            kept = json.loads(RESULTS.read_text(encoding="utf-8"))
            RESULTS.write_text(json.dumps({**kept, "real": real}, indent=1) + "\n", "utf-8")
        return
    began_s = time.process_time()
    rows, scripts = [], {}
    for script in SCRIPTS:
        found = {"steptime sweep": [], "optuna": []}
        for seed in range(options.seeds):
            found["steptime sweep"].append(judged(script, search_ours(script, seed)))
            found["optuna"].append(judged(script, search_optuna(script, seed)))
        answers = [one["best"] for side in found.values() for one in side if one["best"]]
        best_log = reference_log(script, answers)
        for side, ones in found.items():
            for seed, one in enumerate(ones):
                one["regret_fraction"] = math.exp(min(one["log_time"] - best_log, 5.0)) - 1
                rows.append({"script": script.name, "search": side, "seed": seed, **one})
        mine, theirs = (
            statistics.fmean(one["regret_fraction"] for one in found[side]) for side in found
        )
        scripts[script.name] = {
            "target": script.target,
            "budget_s": script.budget_s,
            "best_time_s": math.exp(best_log),
            "regret": mine,
            "regret_optuna": theirs,
            "ratio": mine / theirs,
        }
        print(
            f"{script.name}: regret {mine:.1%} beside {theirs:.1%} of the best time, "
            f"{math.exp(best_log):.2f} s: ratio {mine / theirs:.2f}", flush=True,
        )  # fmt: skip
    sides = {}
    for side in ("steptime sweep", "optuna"):
        mine = [row for row in rows if row["search"] == side]
        said = [row for row in mine if row["holds"] is True]
        sides[side] = {
            "num_winners": len(mine),
            "num_said_to_hold": len(said),
            "num_that_do_not_hold": sum(not row["stands"] for row in said),
            "num_of_all_that_do_not_hold": sum(not row["stands"] for row in mine),
            "num_not_told": sum(row["holds"] is None for row in mine),
            "mean_regret": statistics.fmean(row["regret_fraction"] for row in mine),
            "trials": statistics.median(row["num_trials"] for row in mine),
        }
        print(side, sides[side])
    ours, theirs = (sides[side]["mean_regret"] for side in sides)
    took_s = time.process_time() - began_s
    print(f"regret over both: {ours / theirs:.2f} of Optuna's; CPU {took_s:.0f} s")
    if options.save:
        result = {
            "what": "regret of the parameters found, in a fraction of the best time",
            "command": f"python benchmarks/tune/search_regret.py --seeds {options.seeds} --save",
            "simulated": "the clock (seconds of a step by its batch, 3 % SD of speed from run to "
            "run); the trainings are real",
            **stamp(),
            "cpu": cpu_name(),
            "cores": os.cpu_count(),
            "versions": {
                "python": sys.version.split()[0],
                "optuna": optuna.__version__,
                "numpy": numpy.__version__,
            },
            "n": options.seeds,
            "scripts": scripts,
            "searches": sides,
            "regret_ratio": ours / theirs,
        }
        RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
