"""How often the judge of models is wrong where the truth is known.

    python benchmarks/verify/model_level.py [--draws 2000]

- Calibration: the share of perfectly calibrated models that are refused at 5 %, with 1,000 and 50
  rows, with and without ties, beside MAPIE's three tests on the same draws; and the share of models
  with a constant overconfidence that are found.
- Reversal: tables whose slices say the opposite of the whole, and tables whose slices agree.
- Hunting: two equal models with 40 slices; the share of searches that confirm any slice; and the
  share that finds a slice in which one of ten rows became wrong.

Counted quantities of seeded draws: the machine's load changes none of them. Results go to
benchmarks/results/model_level.json.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from mapie.metrics import calibration as mapie

from steptime.verify.model.calibration import NUM_BINS, _begins, _null_sums, _p_of, _sums
from steptime.verify.model.hunt import hunt
from steptime.verify.model.judge_model import ModelQuestion, judge_model
from steptime.verify.model.two_arms import ArmRows, join

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import BENCHMARKS, cpu_name, stamp

OUT = BENCHMARKS / "results" / "model_level.json"
LEVEL = 0.05
SHIFTS = (0.0, 0.02, 0.05, 0.1)
PEERS = {
    "mapie_kolmogorov_smirnov": mapie.kolmogorov_smirnov_p_value,
    "mapie_kuiper": mapie.kuiper_p_value,
    "mapie_spiegelhalter": mapie.spiegelhalter_p_value,
}


def calibration(draws: int, rows: int, *, ties: bool, shift: float = 0.0) -> dict[str, float]:
    """The share of draws that each test refuses."""
    random = np.random.default_rng(rows)
    refused = dict.fromkeys(("steptime", *PEERS), 0)
    for _ in range(draws):
        p = random.uniform(0.5, 1, rows) if shift else random.random(rows)
        p = np.sort(np.round(p, 1) if ties else p)
        y = (random.random(rows) < p - shift).astype(float)
        begins = _begins(p, NUM_BINS)
        null = _null_sums(p, begins)
        refused["steptime"] += float(_p_of(_sums(begins, y - p)[None], null)[0]) <= LEVEL
        for name, test in PEERS.items():
            with np.errstate(all="ignore"):
                refused[name] += test(y, p) < LEVEL
    return {name: num / draws for name, num in refused.items()}


def reversals(*, planted: bool, times: int = 20) -> int:
    """How many tables are called a reversal, of slices that say the opposite or the same."""
    found = 0
    for seed in range(times):
        random, arms = np.random.default_rng(seed), []
        for arm in (0, 1):
            easy = (0.8, 0.2)[arm] if planted else 0.5
            codes = (random.random(4000) > easy).astype(int)
            rates = np.where(codes == 0, 0.7, 0.3) + 0.05 * arm
            scores = (random.random(4000) < rates).astype(float)
            arms.append(ArmRows(scores=scores[None], slices={"k": codes}))
        asked = ModelQuestion(metric="right", margin=0.02, columns={"k": ("a", "b")})
        found += judge_model(join(*arms), asked).columns[0].is_reversal
    return found


def hunts(times: int, *, loss: float) -> dict[str, float]:
    """The share of searches that confirm any slice, and that confirm the planted one."""
    some = right = 0
    for seed in range(times):
        random = np.random.default_rng(seed)
        slices = random.integers(0, 40, 20_000)
        one, other = (random.random((2, 20_000)) < 0.9).astype(float)
        other[(slices == 7) & (random.random(20_000) < loss)] = 0.0
        ids = np.arange(20_000)
        arms = [ArmRows(scores=x[None], ids=ids, slices={"k": slices}) for x in (one, other)]
        found = hunt(join(*arms), {"k": [str(k) for k in range(40)]}, sign=1.0, margin=0.0)
        confirmed = [one.conditions[0].value for one in found.slices if one.is_confirmed]
        some += bool(confirmed)
        right += "7" in confirmed
    return {"any_confirmed": some / times, "planted_confirmed": right / times}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=2000)
    draws = parser.parse_args().draws
    found: dict[str, Any] = {
        f"{rows} rows{', ties' if ties else ''}": calibration(draws, rows, ties=ties)
        for rows in (1000, 50)
        for ties in (False, True)
    }
    power = {
        f"overconfidence {shift:g}": calibration(200, 1000, ties=False, shift=shift)
        for shift in SHIFTS[1:]
    }
    print(
        f"calibrated models refused at 5 % ({draws} draws; error {math.sqrt(0.0475 / draws):.2%})"
    )
    for title, rows in (*found.items(), *power.items()):
        print(f"  {title:24}", "  ".join(f"{name} {share:.1%}" for name, share in rows.items()))
    reversed_ = {"planted": reversals(planted=True), "none": reversals(planted=False)}
    print(f"reversals: {reversed_['planted']} of 20 planted, {reversed_['none']} of 20 without")
    hunted = {"equal": hunts(500, loss=0.0), "one of ten wrong": hunts(100, loss=0.3)}
    for title, shares in hunted.items():
        print(f"hunting, {title}:", "  ".join(f"{k} {v:.1%}" for k, v in shares.items()))
    OUT.write_text(
        json.dumps(
            {
                **stamp(),
                "cpu": cpu_name(),
                "versions": {
                    "python": platform.python_version(),
                    **{name: version(name) for name in ("numpy", "mapie", "sliceline")},
                },
                "draws": draws,
                "calibration_level": found,
                "calibration_power": power,
                "reversals_of_20": reversed_,
                "hunting": hunted,
            },
            indent=1,
        )
        + "\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
