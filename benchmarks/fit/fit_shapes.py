"""Compares what `plan shapes` predicts with what timing the operators alone shows.

    python benchmarks/fit/fit_shapes.py [--rounds 3] [--best 3] [-o FILE]
    python benchmarks/fit/fit_shapes.py --sweep [-o FILE]

Four scripts with awkward widths (`shape_scripts/`) run in a contained child; the operators of their
best proposals are then timed with the old and the new width in turns, by CPU time of one thread, in
as many processes as there are rounds. Predicted and measured gain (rate of work, new over old) are
compared by Spearman's rank correlation over all proposals of all scripts. `--sweep` times single
products and convolutions of many widths, which the constants of `plan/device_rules.py` are from.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from steptime.app.fit.shape_advice import ShapeOptions, fit_shapes, measured, rule_of
from steptime.launch.user_command import user_environment
from steptime.machine.inventory import HERE as KERNEL
from steptime.machine.operator_turns import OperatorPair, time_operators
from steptime.machine.processors import read_cpu
from steptime.plan.device_rules import cost_of, with_call, work_of
from steptime.plan.values.shape_values import DeviceSeen

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

HERE = Path(__file__).resolve().parent
SCRIPTS = ("lenet", "autoencoder", "gated_text", "two_towers")
WIDTHS = (8, 10, 12, 16, 17, 20, 24, 30, 32, 33, 40, 48, 50, 57, 60, 63, 65, 72, 80, 96, 97, 100)
MORE_WIDTHS = (112, 127, 128, 129, 160, 200, 250, 255, 256, 257, 300, 304, 384, 500, 511, 512, 513)
CHANNELS = (3, 8, 10, 12, 16, 20, 24, 30, 32, 33, 40, 48, 50, 60, 100)
BASE = 64
"""The width that all others are compared with."""


def facts() -> dict[str, Any]:
    """Return what the figures were taken on."""
    cpu = read_cpu(KERNEL, num_usable=len(os.sched_getaffinity(0)))
    return {
        "processor": cpu.model,
        "cores": cpu.num_usable,
        "threads": 1,
        **stamp(),
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
    }


def ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value; equal ones share the mean of theirs."""
    ordered = sorted(values)
    return [ordered.index(v) + (ordered.count(v) - 1) / 2 for v in values]


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Return Spearman's rank correlation."""
    return statistics.correlation(ranks(one), ranks(other))


# -- proposals of scripts


def compare(name: str, *, rounds: int, best: int) -> list[dict[str, Any]]:
    """Return the best proposals of a script with their predicted and measured gains."""
    command = (sys.executable, str(HERE / "shape_scripts" / f"{name}.py"))
    with tempfile.TemporaryDirectory(prefix="shapes-") as store:
        advice = fit_shapes(ShapeOptions(command=command, store=Path(store)), tell=print)
    advice = replace(advice, proposals=advice.proposals[:best])
    times = [
        measured(advice, python=sys.executable, environment=user_environment(), budget_s=60)
        for _ in range(rounds)
    ]
    found = []
    for number, one in enumerate(advice.proposals):
        gains = [turn.proposals[number].measured.gain for turn in times]
        ratios = [turn.proposals[number].measured.time_ratio.estimate for turn in times]
        found.append(
            {
                "script": name,
                "role": one.role,
                "old": one.old,
                "new": one.new,
                "share": round(one.share, 3),
                "more_parameters": one.more_parameters,
                "predicted_gain": round(one.predicted_gain, 3),
                "measured_gain": round(statistics.median(gains), 3),
                "measured_gains": [round(gain, 3) for gain in gains],
                "predicted_time_ratio": round(one.predicted_time_ratio, 3),
                "measured_time_ratio": round(statistics.median(ratios), 3),
            }
        )
    return found


def compare_scripts(words: argparse.Namespace) -> dict[str, Any]:
    """Return the proposals of all scripts, and how well predictions order them."""
    rows = [row for name in SCRIPTS for row in compare(name, rounds=words.rounds, best=words.best)]
    for row in rows:
        place = f"{row['script']:12}{row['role']:12}{row['old']:6} to {row['new']:<6}"
        print(f"{place}{row['predicted_gain']:8.2f}{row['measured_gain']:8.2f}")
    pairs = [(row["predicted_gain"], row["measured_gain"]) for row in rows]
    correlation = rank_correlation([one for one, _ in pairs], [other for _, other in pairs])
    errors = [abs(one / other - 1) for one, other in pairs]
    print(f"rank correlation {correlation:.2f}, n {len(rows)}")
    return {
        **facts(),
        "rounds": words.rounds,
        "n": len(rows),
        "rank_correlation": round(correlation, 3),
        "median_error": round(statistics.median(errors), 3),
        "largest_error": round(max(errors), 3),
        "proposals": rows,
    }


# -- single operators


def product(n: int, dtype: str, rows: int = 2048) -> dict[str, Any]:
    """Return a linear layer of so many rows, 256 inputs and n outputs."""
    sizes = {"m": rows, "n": n, "inner": 256, "batch": 1, "turned": [False, True]}
    return {"kind": "matmul", "which": "forward", "dtype": dtype, "num": 1, "sizes": sizes}


def convolution(taken: int, made: int) -> dict[str, Any]:
    """Return a convolution of 3 x 3 over 16 pictures of 14 x 14."""
    sizes = {"batch": 16, "space": [14, 14], "kernel": [3, 3], "stride": [1, 1]}
    sizes |= {"padding": [1, 1], "dilation": [1, 1], "groups": 1, "transposed": False}
    sizes |= {"wanted": [], "channels_in": taken, "channels_out": made}
    common = {"kind": "convolution", "which": "forward", "dtype": "float32", "num": 1}
    return {**common, "sizes": sizes}


def sweep(words: argparse.Namespace) -> dict[str, Any]:
    """Return predicted and measured time of single operators, over that of the base width."""
    rule = rule_of(DeviceSeen(kind="cpu", capability=words.capability))
    if rule is None:
        sys.exit("nothing is known of this processor")
    groups = {
        "linear, fp32": [(product(BASE, "float32"), product(n, "float32")) for n in WIDTHS]
        + [(product(BASE, "float32"), product(n, "float32")) for n in MORE_WIDTHS],
        "linear, fp32, 256 rows": [
            (product(BASE, "float32", 256), product(n, "float32", 256))
            for n in (*WIDTHS, *MORE_WIDTHS)
        ],
        "linear, bf16": [(product(BASE, "bfloat16"), product(n, "bfloat16")) for n in WIDTHS],
        "channels out": [(convolution(32, 64), convolution(32, n)) for n in CHANNELS],
        "channels in": [(convolution(64, 32), convolution(n, 32)) for n in CHANNELS],
    }
    found: dict[str, Any] = {**facts(), "base": BASE}
    for name, pairs in groups.items():
        rows = []
        gains = time_operators(
            sys.executable,
            [OperatorPair(before=[a], after=[b], work_ratio=1.0) for a, b in pairs],
            device="cpu",
            num_threads=1,
            budget_s=120,
            environment=user_environment(),
        )
        for (before, after), gain in zip(pairs, gains, strict=True):
            costs = [
                with_call(cost_of(one["kind"], one["sizes"], one["dtype"], rule), rule)
                for one in (before, after)
            ]
            work = work_of(after["kind"], after["sizes"]) / work_of(before["kind"], before["sizes"])
            rows.append(
                {
                    "width": round(work * BASE),
                    "predicted": round(costs[1] / costs[0], 3),
                    "measured": round(gain.time_ratio.estimate, 3),
                }
            )
        errors = [abs(row["predicted"] / row["measured"] - 1) for row in rows]
        rates = [(row["width"] / row["predicted"], row["width"] / row["measured"]) for row in rows]
        correlation = rank_correlation(*zip(*rates, strict=True))
        print(f"{name:22} median error {statistics.median(errors):.0%}, rank {correlation:.2f}")
        found[name] = {
            "median_error": round(statistics.median(errors), 3),
            "rank_correlation_of_rates": round(correlation, 3),
            "rows": rows,
        }
    return found


def main() -> None:
    """Compare, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="processes that time a script")
    parser.add_argument("--best", type=int, default=3, help="proposals of a script")
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--capability", default="AVX512", help="as torch names it")
    parser.add_argument("-o", "--output", type=Path)
    words = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    found = sweep(words) if words.sweep else compare_scripts(words)
    if words.output is not None:
        words.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
