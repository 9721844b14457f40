"""Makes the tables of this example: a ranker that is better, measured by three teams.

    python examples/release/make_tables.py [FOLDER]

Without a folder, the tables are written beside this file.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

KINDS = ("noise", "stale", "dropped", "lower precision", "truncated", "random")
OTHERS = {"ranker": ("ad_quality", "tickets"), "bidder": ("ndcg", "search_success", "tickets"),
          "assistant": ("ndcg", "search_success", "ad_quality")}  # fmt: skip
OWN = {"bidder": "ad_quality", "assistant": "tickets"}
SEGMENTS = {"phone": 1.2, "desktop": 0.9, "tablet": 0.7}
# A degradation that costs 0.1 of ndcg costs so much of the others.
SLOPES = {"search_success": 0.8, "retention": 0.3}
ERRORS = {"ndcg": 0.0025, "search_success": 0.006, "retention": 0.003, "ad_quality": 0.004,
          "tickets": 0.01}  # fmt: skip
LAGS = {1: -0.1, 7: 0.6, 14: 1.0}
COLUMNS = (
    "experiment",
    "kind",
    "dose",
    "component",
    "segment",
    "metric",
    "lag",
    "effect",
    "error",
    "n",
)


def offline(random):
    """Both rankers on the same 600 queries."""
    old = np.clip(random.normal(0.6, 0.2, 600), 0, 1)
    new = np.clip(old + random.normal(0.012, 0.05, 600), 0, 1)
    yield "query", "ranker", "ndcg"
    for name, scores in (("old", old), ("new", new)):
        for i, score in enumerate(scores):
            yield f"q{i}", name, f"{score:.4f}"


def online(random):
    """Users in the order in which they came, each with one of the rankers."""
    yield "ranker", "search_success", "tickets"
    for is_new in random.random(6000) < 0.5:
        success = random.random() < (0.56 if is_new else 0.50)
        yield "new" if is_new else "old", int(success), int(random.random() < 0.1)


def effects():
    """What another system says after two weeks."""
    yield "metric", "effect", "error", "n"
    yield "retention", 0.004, 0.003, 40_000
    yield "ad_quality", -0.001, 0.004, 40_000


def experiments(random):
    """Components made worse on purpose, and two A/A experiments."""

    def row(name, metric, effect, kind="", dose=None, component="", segment="", lag=""):
        seen = effect + random.normal(0, ERRORS[metric])
        found = (f"{seen:.5f}", ERRORS[metric], 5000)
        return name, kind, dose, component, segment, metric, lag, *found

    yield COLUMNS
    for i in (1, 2):
        yield from (row(f"A/A {i}", metric, 0.0, dose=0) for metric in ERRORS)
    for kind in KINDS:
        for dose in (1, 2, 3):
            name, loss = f"ranker: {kind} {dose}", -0.03 * dose
            of = {"kind": kind, "dose": dose, "component": "ranker"}
            yield row(name, "ndcg", loss, **of)
            yield row(name, "search_success", SLOPES["search_success"] * loss, **of)
            for lag, share in LAGS.items():
                yield row(name, "retention", share * SLOPES["retention"] * loss, lag=lag, **of)
            yield from (row(name, metric, 0.0, **of) for metric in OTHERS["ranker"])
            for segment, share in SEGMENTS.items():
                for metric, slope in (("ndcg", 1.0), ("search_success", 0.8)):
                    yield row(name, metric, share * slope * loss, segment=segment, **of)
    for component, own in OWN.items():
        for kind in KINDS[:2]:
            name, loss = f"{component}: {kind}", -0.08 if own == "ad_quality" else 0.2
            of = {"kind": kind, "dose": 1, "component": component}
            yield row(name, own, loss, **of)
            yield from (row(name, metric, 0.0, **of) for metric in OTHERS[component])


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
