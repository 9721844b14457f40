"""How often a release that should not ship does: after 30 looks, and by proxies beside an oracle.

    python benchmarks/verify/release_level.py [--times 2000]

Looks: A/A experiments of 6,000 units whose rows come in one by one, with 30 looks at equal
distances. A release ships falsely where any look says that it is better. Beside it stand z-tests
at each look, and experiments whose candidate is worse by exactly the margin; the first 20 go
through the whole decision at each look, too.

Proxies: six draws of 80 simulated tests, made as PROXIMA's public generator says (arXiv
2604.14352): users of 24 segments (region, device, tenure), a retention with an effect in log-odds
of N(0, 0.12) plus that of the segment, and four early metrics of which two are inflated where
retention suffers. 40 tests have its heterogeneity, 40 a quarter of it. The oracle ships where the
true effect on retention is above 0. Each rule decides on the same draws: the metric whose effects
correlate most, the metric with the best of PROXIMA's scores, both by the sign of its effect, and
`steptime verify release`, which may also ask for more rows; those are drawn, at most nine times as
many as there are at once, up to a billion, and the others get them as well. What it never decides
counts as wrong. Results go to benchmarks/results/release_level.json.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm
from ville import best_rho, normal_mixture

from steptime.verify.model.signed_gains import LEVEL, SignedGain
from steptime.verify.release.judge_release import judge_release
from steptime.verify.release.proxima import proxima_scores
from steptime.verify.release.release_question import (
    ExperimentTable,
    MetricExperiment,
    MetricTable,
    ReleaseFile,
    ReleaseMetric,
    ReleaseQuestion,
    Team,
)
from steptime.verify.release.sequential import sequence_of, sequential_gain
from steptime.verify.values import Outcome
from steptime.verify.values.release_verdict import MetricKind

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import BENCHMARKS, cpu_name, stamp

OUT = BENCHMARKS / "results" / "release_level.json"
UNITS, LOOKS, SEED, MARGIN = 6000, 30, 40, 0.1
USERS, MOST_USERS, MOST_ROUNDS, MOST_TIMES = 5000, 10**9, 40, 9
DECISIONS, DRAWS = 20, 6
TEAMS = (Team(name="us", owner="us"),)
Z = float(norm.isf(LEVEL))


# -- looks


def looks(times: int) -> dict[str, Any]:
    """How many of the experiments ship at one of the looks at least."""
    random = np.random.default_rng(SEED)
    at = np.linspace(UNITS / LOOKS, UNITS, LOOKS).astype(int)
    shipped = dict.fromkeys(("steptime", "z_one_sided", "z_two_sided", "worse_by_the_margin"), 0)
    agree = 0
    for i in range(times):
        treated = (random.random(UNITS) < 0.5).astype(float)
        scores = random.standard_normal(UNITS)
        estimate, reach = (x[at - 1] for x in sequence_of(scores, treated, share=0.5))
        ships = (estimate - reach > 0).any()
        shipped["steptime"] += bool(ships)
        z = z_values(scores, treated)[at - 1]
        shipped["z_one_sided"] += bool((z > Z).any())
        shipped["z_two_sided"] += bool((abs(z) > norm.isf(LEVEL / 2)).any())
        harmed = scores - MARGIN * treated
        estimate, reach = (x[at - 1] for x in sequence_of(harmed, treated, share=0.5))
        shipped["worse_by_the_margin"] += bool((estimate - reach > -MARGIN).any())
        if i < DECISIONS:
            agree += ships == any(whole_decision(scores[:n], treated[:n]) for n in at)
    shares = {name: num / times for name, num in shipped.items()}
    return {**shares, "times": times, "whole_decisions_agree": f"{agree} of {DECISIONS}"}


def z_values(scores: Any, treated: Any) -> Any:
    """The z-test after each unit."""
    sums = []
    for arm in (treated, 1 - treated):
        n = np.maximum(np.cumsum(arm), 2)
        mean = np.cumsum(scores * arm) / n
        sums.append((mean, (np.cumsum(scores**2 * arm) / n - mean**2) / n))
    (a, va), (b, vb) = sums
    return (a - b) / np.sqrt(np.maximum(va + vb, 1e-12))


def whole_decision(scores: Any, treated: Any) -> bool:
    metric = ReleaseMetric(name="m", kind=MetricKind.TEAM, team="us", margin=10.0, table="t")
    if min(treated.sum(), (1 - treated).sum()) < 100:
        return False
    gain = sequential_gain(scores, treated, share=0.5)
    tables = (MetricTable(name="t", path="t.csv", online=True),)
    file = ReleaseFile(release="r", team="us", teams=TEAMS, metrics=(metric,), tables=tables)
    asked = ReleaseQuestion(file=file, measured={"m": gain})
    return judge_release(asked).outcome is Outcome.PASS


# -- proxies

REGIONS = {"NA": (0.35, 0.2), "LATAM": (0.2, -0.1), "EU": (0.25, 0.05), "IN": (0.2, -0.15)}
DEVICES = {"TV": (0.45, 0.25), "Mobile": (0.45, -0.05), "Desktop": (0.1, 0.0)}
TENURES = {"New": (0.3, -0.1), "Existing": (0.7, 0.1)}
SEGMENTS = list(product(REGIONS, DEVICES, TENURES))
EARLY = {"watch": 1.0, "starts": 1.0, "ctr": 1.0, "rebuffer": -1.0}
METRICS = (*EARLY, "retained")


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


class Users:
    """Users without treatment: by segment, their share, and the covariance of their metrics."""

    def __init__(self, random: Any, num: int = 20_000) -> None:
        self.shares, self.covariances, self.logits = [], [], []
        for region, device, tenure in SEGMENTS:
            (p, r), (q, d), (o, t) = REGIONS[region], DEVICES[device], TENURES[tenure]
            satisfied = random.normal(size=num) + r + d + t
            engaged = random.normal(size=num) + 0.5 * d - 0.2 * t
            logits = -0.3 + 0.7 * satisfied + 0.15 * engaged
            rebuffer = -0.2 * satisfied + 0.25 * (region == "IN") + 0.15 * (device == "Mobile")
            ctr = sigmoid(0.3 * engaged - 0.35 * satisfied + 0.1 * random.normal(size=num))
            watch = 25 + 10 * engaged + 6 * satisfied + 5 * random.normal(size=num)
            starts = 1.8 + 0.7 * sigmoid(engaged) + 0.2 * sigmoid(satisfied)
            starts += 0.3 * random.normal(size=num)
            late = (random.random(num) < sigmoid(logits)).astype(float)
            seen = [watch, starts, ctr, sigmoid(rebuffer + 0.1 * random.normal(size=num)), late]
            self.shares.append(p * q * o)
            self.covariances.append(np.cov(seen))
            self.logits.append(logits[:4000])

    def true_effects(self, tau: float, heterogeneity: float) -> Any:
        """The effect of a test on each metric in each segment (num_segments, num_metrics)."""
        rows = []
        for (region, device, tenure), logits in zip(SEGMENTS, self.logits, strict=True):
            fails = (region, device, tenure) == ("IN", "Mobile", "New")
            of_segment = 0.06 * (device == "TV") - 0.05 * (device == "Mobile")
            of_segment += -0.03 * (region == "IN") + 0.03 * (tenure == "Existing")
            of_segment *= heterogeneity
            late = tau + of_segment - 0.25 * heterogeneity * fails
            inflated = heterogeneity * fails
            rows.append(
                (
                    8 * (tau + 0.3 * of_segment) + 6 * inflated,
                    0.4 * (tau + 0.2 * of_segment) + 0.6 * inflated,
                    0.06 + 0.04 * (device == "Mobile") * heterogeneity,
                    -0.03 * (device == "TV"),
                    float((sigmoid(logits + late) - sigmoid(logits)).mean()),
                )
            )
        return np.array(rows)

    def draw(self, random: Any, true: Any, num: int) -> Any:
        """The effects that `num` new users show, by segment (num_segments, num_metrics)."""
        return np.array(
            [
                random.multivariate_normal(effect, 4 * covariance / (num * share))
                for effect, covariance, share in zip(
                    true, self.covariances, self.shares, strict=True
                )
            ]
        )

    def noise(self) -> Any:
        """The covariance of the effects of one user (num_metrics, num_metrics)."""
        return 4 * sum(w * c for w, c in zip(self.shares, self.covariances, strict=True))


def experiment(name: str, users: Users, effects: Any, num: int, **facts: Any) -> MetricExperiment:
    signs = {**EARLY, "retained": 1.0}
    error, whole = np.sqrt(np.diag(users.noise()) / num), np.array(users.shares) @ effects

    def gains(row: Any) -> dict[str, SignedGain]:
        return {
            x: SignedGain(signs[x] * float(row[i]), float(error[i]), num)
            for i, x in enumerate(METRICS)
        }

    parts = {" ".join(x): gains(row) for x, row in zip(SEGMENTS, effects, strict=True)}
    return MetricExperiment(name=name, gains=gains(whole), by_segment=parts, **facts)


def all_proxies() -> dict[str, Any]:
    """How often each rule decides as the oracle does, over six draws of 80 tests."""
    found = {seed: proxies(seed) for seed in range(SEED, SEED + DRAWS)}
    rules = [name for name, one in found[SEED].items() if isinstance(one, dict) and "agrees" in one]
    means = {rule: sum(one[rule]["agrees"] for one in found.values()) / DRAWS for rule in rules}
    return {"agrees": means, "by_seed": found}


def proxies(seed: int) -> dict[str, Any]:
    """How often each rule decides as the oracle does in 80 tests."""
    random = np.random.default_rng(seed)
    users = Users(random)
    tests = [
        users.true_effects(float(tau), heterogeneity)
        for heterogeneity in (0.25, 1.0)
        for tau in random.normal(0, 0.12, 40)
    ]
    shares = np.array(users.shares)
    oracle = [float(shares @ true[:, -1]) > 0 for true in tests]
    first = [users.draw(random, true, USERS) for true in tests]
    ladder = degraded(users, random)
    final, nums, ours, early = [], [], [], []
    for true, drawn in zip(tests, first, strict=True):
        outcomes, effects, num = decided(users, random, true, drawn, ladder)
        early.append(outcomes[0])
        ours.append(outcomes[-1])
        final.append(effects)
        nums.append(num)
    found = {
        "tests": len(tests),
        "oracle_ships": sum(oracle),
        "users_at_first": USERS,
        "users_at_the_end": {
            "median": int(np.median(nums)),
            "p90": int(np.quantile(nums, 0.9)),
            "most": max(nums),
        },
        "steptime": agreement(ours, oracle),
        "steptime_at_first": agreement(early, oracle),
    }
    for name, draws, sizes in (
        ("at_first", first, [USERS] * len(tests)),
        ("with_the_same_rows", final, nums),
    ):
        made = [
            experiment(str(i), users, effects, num)
            for i, (effects, num) in enumerate(zip(draws, sizes, strict=True))
        ]
        scores = {metric: scored(made, metric) for metric in EARLY}
        for rule, key in (("correlation_alone", "effect_correlation"), ("proxima", "reliability")):
            best = max(EARLY, key=lambda metric: scores[metric][key])
            signs = [Outcome.PASS if one.gains[best].mean > 0 else Outcome.FAIL for one in made]
            found[f"{rule}_{name}"] = {"metric": best, **agreement(signs, oracle)}
    return found


def scored(made: list[MetricExperiment], metric: str) -> dict[str, Any]:
    pairs = np.array([[one.gains[x].mean for x in (metric, "retained")] for one in made])
    r = float(np.corrcoef(pairs, rowvar=False)[0, 1])
    return {"effect_correlation": r, **proxima_scores(made, (metric, "retained"), r)}


def agreement(outcomes: list[Outcome], oracle: list[bool]) -> dict[str, Any]:
    right = [(one is Outcome.PASS) if ships else one is Outcome.FAIL
             for one, ships in zip(outcomes, oracle, strict=True)]  # fmt: skip
    decided = sum(one is not Outcome.INCONCLUSIVE for one in outcomes)
    return {"agrees": sum(right) / len(right), "right": sum(right), "decided": decided}


def degraded(users: Users, random: Any) -> tuple[MetricExperiment, ...]:
    """Six kinds of degradation in three doses of 50,000 users, and A/A of 200 million."""
    num, made, many = 50_000, [], 200_000_000
    for kind in "abcdef":
        for dose in (1.0, 2.0, 3.0):
            true = users.true_effects(-0.3 * dose, 0.25)
            effects = users.draw(random, true, num)
            made.append(experiment(f"{kind}{dose}", users, effects, num, kind=kind, dose=dose))
    nothing = users.draw(random, 0 * users.true_effects(0.0, 0.0), many)
    return (*made, experiment("A/A", users, nothing, many, dose=0.0))


def decided(
    users: Users, random: Any, true: Any, effects: Any, ladder: tuple[MetricExperiment, ...]
) -> tuple[list[Outcome], Any, int]:
    """Decide, draw the rows that are asked for, and decide again."""
    num, outcomes = USERS, list[Outcome]()
    for _ in range(MOST_ROUNDS):
        found = judge_release(question(users, effects, num, ladder))
        outcomes.append(found.outcome)
        more = min(max((need.num_more for need in found.needs), default=0), MOST_TIMES * num)
        if found.outcome is not Outcome.INCONCLUSIVE or num + more > MOST_USERS or not more:
            break
        effects = (num * effects + more * users.draw(random, true, more)) / (num + more)
        num += more
    return outcomes, effects, num


def question(
    users: Users, effects: Any, num: int, ladder: tuple[MetricExperiment, ...]
) -> ReleaseQuestion:
    """The early metric below retention, both of the team, whose rows come in over time."""
    whole = np.array(users.shares) @ effects
    reach = float(normal_mixture(num, 2 * LEVEL, best_rho(1000, 2 * LEVEL))) / num
    noise = users.noise()
    spread = np.sqrt(np.diag(noise))
    measured = {
        name: SignedGain(float(whole[i]), float(spread[i]) * reach / Z, num)
        for i, name in ((0, "watch"), (4, "retained"))
    }
    metrics = (
        ReleaseMetric(
            name="watch",
            kind=MetricKind.ACCEPTANCE,
            team="us",
            margin=1.0,
            table="users",
            proxy_for="retained",
        ),
        ReleaseMetric(
            name="retained", kind=MetricKind.KPI, team="us", margin=0.0005, table="users"
        ),
    )
    file = ReleaseFile(
        release="test",
        team="us",
        teams=TEAMS,
        metrics=metrics,
        tables=(MetricTable(name="users", path="users.csv", online=True),),
        experiments=ExperimentTable(
            path="experiments.csv",
            noise_correlation=float(noise[0, 4] / (spread[0] * spread[4])),
        ),
    )
    return ReleaseQuestion(file=file, measured=measured, experiments=ladder)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--times", type=int, default=2000)
    times = parser.parse_args().times
    found = {"looks": looks(times), "proxies": all_proxies()}
    print(json.dumps(found, indent=1))
    if not math.isclose(times, 2000):
        return
    libraries = {name: version(name) for name in ("numpy", "scipy", "ville")}
    conditions = {"cpu": cpu_name(), "python": platform.python_version(), **libraries, **stamp()}
    OUT.write_text(json.dumps({**found, "seed": SEED, **conditions}, indent=1) + "\n")


if __name__ == "__main__":
    main()
