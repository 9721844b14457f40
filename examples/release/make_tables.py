"""Makes the tables of this example: a ranker that is better, measured by three teams.

    python examples/release/make_tables.py [FOLDER]

Without a folder, the tables are written beside this file.
"""

from __future__ import annotations

import csv
import sys
from itertools import product
from pathlib import Path

import numpy as np

ERRORS = {"ndcg": 0.0025, "search_success": 0.006, "retention": 0.003, "ad_quality": 0.004,
          "answer_minutes": 0.4}  # fmt: skip
# By component: what a dose of damage does to its own metrics; those of other teams stay still.
DAMAGE = {"ranker": {"ndcg": -0.03, "search_success": -0.024, "retention": -0.009},
          "bidder": {"ad_quality": -0.03}, "assistant": {"answer_minutes": 4.0}}  # fmt: skip
KINDS = ("noise", "stale", "dropped", "lower precision", "truncated", "random")
SEGMENTS = {"phone": 1.2, "desktop": 0.9}
LAGS = {1: -0.1, 7: 0.6, 14: 1.0}  # retention is down at first
COLUMNS = ("experiment", "kind", "dose", "component", "segment", "metric", "lag", "effect",
           "error", "n")  # fmt: skip


def offline(random):
    """Both rankers on the same queries."""
    old = np.clip(random.normal(0.6, 0.2, 140), 0, 1)
    new = np.clip(old + random.normal(0.012, 0.02, 140), 0, 1)
    yield "query", "ranker", "ndcg"
    for name, scores in (("old", old), ("new", new)):
        yield from ((f"q{i}", name, f"{score:.4f}") for i, score in enumerate(scores))


def online(random):
    """Users in the order in which they came, each with one of the rankers."""
    yield "ranker", "search_success", "answer_minutes"
    for is_new in random.random(290) < 0.5:
        success, minutes = random.normal(0.56 if is_new else 0.50, 0.1), random.normal(30, 5)
        yield "new" if is_new else "old", f"{success:.3f}", f"{minutes:.1f}"


def effects():
    """What another system says after two weeks."""
    yield "metric", "effect", "error", "n"
    yield "retention", 0.004, 0.003, 40_000
    yield "ad_quality", -0.001, 0.004, 40_000


def experiments(random):
    """Components made worse on purpose, and two A/A experiments."""

    def seen(metric, effect):
        return f"{effect + random.normal(0, ERRORS[metric]):.5f}", ERRORS[metric], 5000

    yield COLUMNS
    for i, metric in product((1, 2), ERRORS):
        yield f"A/A {i}", "", 0, "", "", metric, "", *seen(metric, 0.0)
    for (component, damage), kind, dose in product(DAMAGE.items(), KINDS, (1, 2, 3)):
        if component != "ranker" and (kind not in KINDS[:2] or dose < 3):
            continue
        head = f"{component}: {kind} {dose}", kind, dose, component
        for metric in ERRORS:
            effect = dose * damage.get(metric, 0.0)
            lags = LAGS.items() if metric == "retention" else [("", 1.0)]
            for lag, share in lags:
                yield *head, "", metric, lag, *seen(metric, share * effect)
        for (segment, share), metric in product(SEGMENTS.items(), ("ndcg", "search_success")):
            if component == "ranker":
                yield *head, segment, metric, "", *seen(metric, share * dose * damage[metric])


def main(folder: Path) -> None:
    random = np.random.default_rng(40)
    tables = {
        "offline": offline(random),
        "online": online(random),
        "after_two_weeks": effects(),
        "experiments": experiments(random),
    }
    for name, rows in tables.items():
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent)
