"""How often planted wrong levers are refused, and right ones passed, in real whole runs.

    python benchmarks/verify/wrong_levers.py [--seeds 20] [--only NAME ...] [--seed N] [--unstable]
                                      [--written]

Trains the small convnet of tests/specimens (batch norm, dropout, evaluation), or with `--written`
the small GPT that writes out what torch has fused and a layer on words that are almost all zeros,
with each lever and judges it as a study does: 40 updates, three perturbed runs. A seed is other
data, other initial weights and other draws; the lever without synchronization trains on two ranks.
Results go to benchmarks/results/wrong_levers.json after each seed; `--only` runs are not saved.
`--unstable` trains at a learning rate so large that rounding alone soon decides what the losses
are. Both it and `--written` save in a file beside.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from difflib import unified_diff
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import BENCHMARKS, ROOT, conditions

sys.path.insert(0, str(ROOT / "tests"))

from end_to_end.harness import SPECIMENS
from end_to_end.quality_runs import Baselines, Put, Script, shipped, wrong
from steptime.verify.values import Outcome, QualityCheck, Verdict

WRITER = SPECIMENS / "small_writer.py"
OUT = BENCHMARKS / "results" / "wrong_levers.json"
OUT_WRITTEN = BENCHMARKS / "results" / "wrong_levers_written.json"
UNSTABLE = BENCHMARKS / "results" / "wrong_levers_unstable.json"
NUM_UPDATES = 40
STEPS = ("--steps", str(NUM_UPDATES + 1))
STABLE_RATE, UNSTABLE_RATE = "2e-3", "0.1"

OF_THE_WRITER = ("later_words", "other_gelu", "first_samples", "other_rows")
"""Wrong levers that the small GPT is trained with; right ones are in `WRITTEN` and `KEPT`."""

OF_THE_WORDS = ("sparse input", "larger_words")
"""Levers that the layer on words is trained with."""

WRONG = (
    *("dropped_gradient", "halved_learning_rate", "skipped_batches", "dropout_off"),
    *("shifted_labels", "unsynchronized", "half_batch", "stale_weights", "bf16_weights"),
    *("wrong_loss_scale", "frozen_norms", "skipped_evaluation", "stale_cache", "silently_eager"),
    *("halved_update", "seldom_updates"),
    *OF_THE_WRITER,
    "larger_words",
)

LOOP = "TEXT[i : i + LENGTH] for i in starts"
STACKED = f"    x = torch.stack([{LOOP}])\n"
GATHERED = "    x = TEXT.unfold(0, LENGTH, 1).movedim(-1, 1)[starts]\n"
OTHERS = "    x = TEXT.unfold(0, LENGTH, 1).movedim(-1, 1)[starts + 1]\n"

BF16 = 2.0**-8
RIGHT: dict[str, tuple[Put, ...]] = {
    "noop": (wrong("noop"),),
    "autocast bf16": (shipped("autocast", roundoff=BF16, dtype="bf16"),),
    "matmul medium": (shipped("matmul_precision", roundoff=BF16, precision="medium"),),
    "fused": (shipped("fused_optimizer", implementation="fused"),),
    "foreach": (shipped("fused_optimizer", implementation="foreach"),),
    "channels_last": (shipped("channels_last"),),
    "autocast, channels_last, fused": (
        shipped("autocast", roundoff=BF16, dtype="bf16"),
        shipped("channels_last"),
        shipped("fused_optimizer", implementation="fused"),
    ),
    "compile": (shipped("compile", mode="default"),),
}


def cut_otherwise(line: str) -> Put:
    """The lever that lets one call cut all rows of text, with this line for it."""
    lines = WRITER.read_text().splitlines(keepends=True)
    edited = [line if one == STACKED else one for one in lines]
    diff = unified_diff(lines, edited, f"a/{WRITER}", f"b/{WRITER}")
    return shipped("vectorized_loops", diff="".join(diff))


WRITTEN: dict[str, tuple[Put, ...]] = {
    "fused attention": (shipped("fused_attention"),),
    "fused GELU": (shipped("fused_gelu"),),
    "bf16 in places": (shipped("module_precision", roundoff=BF16, float32="none", low=True),),
    "micro batches": (shipped("micro_batches", parts=2),),
    "sparse input": (shipped("sparse_input"),),
}
KEPT: dict[str, tuple[Put, ...]] = {
    "loop as one call": (cut_otherwise(GATHERED),),
    "samples made once": (shipped("preloaded_samples", limit_bytes=1 << 24),),
    "data set cached": (shipped("dataset_cache", limit_bytes=1 << 24),),
    "one worker": (
        shipped("dataloader", num_workers=1, persistent_workers=True, prefetch_factor=2),
    ),
}
"""These keep each bit, and are judged so."""
WRITTEN["all written out, fused, samples made once"] = (
    *(*WRITTEN["fused attention"], *WRITTEN["fused GELU"], *RIGHT["fused"]),
    *(*KEPT["loop as one call"], *KEPT["samples made once"]),
)
ALL_RIGHT = RIGHT | WRITTEN | KEPT


def is_written(name: str) -> bool:
    """Whether it is not the small convnet that is trained with it."""
    return name in WRITTEN or name in KEPT or name in (*OF_THE_WRITER, *OF_THE_WORDS)


def put_of(name: str) -> tuple[Put, ...]:
    """The levers of a row."""
    if name == "other_rows":
        return (cut_otherwise(OTHERS),)
    return ALL_RIGHT[name] if name in ALL_RIGHT else (wrong(name),)


def judge_all(names: list[str], seed: int, *, rate: str) -> dict[str, dict[str, Any]]:
    """Every lever with one seed, over the same runs of the baseline."""
    steps = (*STEPS, "--learning-rate", rate)
    convnet = Script(name="small_convnet", args=(*steps, "--eval-every", "8"))
    two_ranks = Script(name="small_convnet", args=(*steps, "--ranks"), nproc=2)
    writer = Script(name=WRITER.stem, args=(*steps, "--eval-every", "8"))
    bag = Script(name="zero_input", args=(*STEPS, "--seed", str(seed)))
    with tempfile.TemporaryDirectory() as folder:
        one, two, written, words = (
            Baselines(
                Path(folder) / str(number),
                script,
                num_updates=NUM_UPDATES,
                num_repeats=3,
                seed=seed,
                is_forked=True,
            )
            for number, script in enumerate((convnet, two_ranks, writer, bag))
        )
        found = {}
        for name in names:
            if name == "unsynchronized":
                baselines = two
            elif name in OF_THE_WORDS:
                baselines = words
            else:
                baselines = written if is_written(name) else one
            preserves = "EXACT" if name in KEPT else "NUMERIC"
            verdict = baselines.judge(*put_of(name), preserves=preserves, stop_early=name in WRONG)
            found[name] = describe(verdict)
        return found


def describe(verdict: Verdict) -> dict[str, Any]:
    """What is kept of a verdict."""
    failed = [check for check in verdict.checks if check.outcome is Outcome.FAIL]
    return {
        "outcome": verdict.outcome.value,
        "level": verdict.level,
        "failed": [check.name for check in failed],
        "open": [c.name for c in verdict.checks if c.outcome is Outcome.INCONCLUSIVE],
        "horizon": next((c.n for c in verdict.checks if c.name == "lockstep"), None),
        "detail": failed[0].detail if failed else None,
        "nearest": {
            check.name: round(share(check), 4)
            for check in verdict.checks
            if check.limit is not None
        },
    }


def share(check: QualityCheck) -> float:
    """Of the limit of a check, what was found."""
    assert check.estimate is not None
    assert check.limit is not None
    return min(1e6, check.estimate / check.limit)


def sum_up(name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """A row of the table."""
    outcomes = Counter(run["outcome"] for run in runs)
    nearest: dict[str, float] = {}
    for run in runs:
        for check, value in run["nearest"].items():
            nearest[check] = max(nearest.get(check, 0.0), value)
    return {
        "is_wrong": name in WRONG,
        "n": len(runs),
        **{outcome.value: outcomes[outcome.value] for outcome in Outcome},
        "by": Counter(check for run in runs for check in run["failed"]),
        "nearest": nearest,
    }


def print_table(results: dict[str, Any]) -> None:
    print(json.dumps(results["conditions"]))
    print(f"{'lever':<32}{'n':>3} {'FAIL':>5} {'PASS':>5} {'open':>5}  by, or nearest to a limit")
    for name, row in results["levers"].items():
        if row["is_wrong"]:
            words = ", ".join(f"{count}x {check}" for check, count in row["by"].most_common(3))
        else:
            nearest = sorted(row["nearest"].items(), key=lambda item: -item[1])[:3]
            words = ", ".join(f"{check} at {value:.2f}" for check, value in nearest)
        counts = f"{row['FAIL']:>5} {row['PASS']:>5} {row['INCONCLUSIVE']:>5}"
        print(f"{name:<32}{row['n']:>3} {counts}  {words}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", nargs="+", choices=[*WRONG, *ALL_RIGHT], metavar="NAME")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="the first one")
    parser.add_argument("--unstable", action="store_true", help="at a far too large learning rate")
    parser.add_argument("--written", action="store_true", help="only with the small GPT")
    options = parser.parse_args()
    rate, out = (UNSTABLE_RATE, UNSTABLE) if options.unstable else (STABLE_RATE, OUT)
    out = OUT_WRITTEN if options.written else out
    usual = [one for one in (*WRONG, *ALL_RIGHT) if is_written(one) is options.written]
    names = list(options.only or usual)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    results: dict[str, Any] = {
        "conditions": conditions() | {"seed": options.seed, "num_updates": NUM_UPDATES}
    }
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache  # compiled once, not once a seed
        began = time.monotonic()
        for number in range(options.seeds):
            for name, found in judge_all(names, options.seed + number, rate=rate).items():
                runs[name].append(found)
            results["levers"] = {name: sum_up(name, found) for name, found in runs.items()}
            results["conditions"]["seeds"] = number + 1
            left_s = (time.monotonic() - began) / (number + 1) * (options.seeds - number - 1)
            print(f"seed {number + 1}, {left_s / 60:.0f} min left", file=sys.stderr, flush=True)
            if not options.only:
                out.write_text(json.dumps(results, indent=1) + "\n")
    print_table(results)


if __name__ == "__main__":
    main()
