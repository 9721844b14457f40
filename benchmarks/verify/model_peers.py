"""The same planted cases through Evidently, Fairlearn, MAPIE and Steptime: who says what is true.

    python benchmarks/verify/model_peers.py

Each tool is asked as its pages say: Evidently by a test of the metric against the reference (a
report for each slice), Fairlearn by a MetricFrame of each model, MAPIE by its metrics of
calibration. None of them is a dependency: one that is not installed says so. A tool that shows the
numbers and gives no answer is *shown*. Results go to benchmarks/results/model_peers.json.
"""

from __future__ import annotations

import json
import math
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

import steptime

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import BENCHMARKS, stamp

OUT = BENCHMARKS / "results" / "model_peers.json"
MARGIN = 0.01
RIGHT, WRONG, SHOWN, NONE = "right", "wrong", "shown", "does not ask"
PACKAGES = ("evidently", "fairlearn", "MAPIE")


@dataclass(frozen=True)
class Case:
    """Rows of two models, or of one, whose truth is known.

    Attributes:
        truth: `as good`, `worse`, `calibrated`, `not calibrated`, or `slice worse`.
    """

    title: str
    truth: str
    old: dict[str, Any]
    new: dict[str, Any]
    slices: tuple[str, ...] = ()
    hunt: tuple[str, ...] = ()
    shares: dict[str, dict[str, float]] = field(default_factory=dict)


def rows_of(label: Any, right: Any, **more: Any) -> dict[str, Any]:
    prediction = np.where(right, label, 1 - label)
    ids = np.arange(len(label))
    return {"id": ids, "label": label * 1, "prediction": prediction * 1, **more}


def cases() -> Iterator[Case]:
    random = np.random.default_rng(0)

    def mixed(rates: dict[str, float], shares: dict[str, float], start: int) -> dict[str, Any]:
        kinds = np.repeat(list(shares), [round(20_000 * share) for share in shares.values()])
        label = random.random(len(kinds)) < 0.5
        right = random.random(len(kinds)) < np.array([rates[kind] for kind in kinds])
        rows = rows_of(label, right, kind=kinds)
        return rows | {"id": rows["id"] + start}

    yield Case(
        "better in each slice, on another mix of rows",
        "as good",
        mixed({"easy": 0.9, "hard": 0.6}, {"easy": 0.8, "hard": 0.2}, 0),
        mixed({"easy": 0.92, "hard": 0.62}, {"easy": 0.3, "hard": 0.7}, 50_000),
        slices=("kind",),
        shares={"kind": {"easy": 0.8, "hard": 0.2}},
    )
    label = random.random(1000) < 0.5
    right = random.random(1000) < 0.85
    other = right.copy()
    lost, won = np.flatnonzero(right)[:41], np.flatnonzero(~right)[:28]
    other[lost], other[won] = False, True
    yield Case(
        "1,000 rows, 41 lost and 28 won: too few to tell a loss of 0.01",
        "undecided",
        rows_of(label, right),
        rows_of(label, other),
    )
    label = random.random(40_000) < 0.5
    country = np.array([f"c{i:02d}" for i in range(12)])[random.integers(0, 12, 40_000)]
    right = random.random(40_000) < 0.85
    other = right & ~((country == "c07") & (random.random(40_000) < 0.2))
    other |= (country != "c07") & (random.random(40_000) < 0.12)
    planted = {"country": country}
    yield Case(
        "better as a whole, 17 points worse in one named slice of twelve",
        "slice worse",
        rows_of(label, right, **planted),
        rows_of(label, other, **planted),
        slices=("country",),
    )
    yield Case(
        "the same, and no slice is named",
        "slice worse",
        rows_of(label, right, **planted),
        rows_of(label, other, **planted),
        hunt=("all",),
    )
    label = random.random(20_000) < 0.5
    right = random.random(20_000) < 0.85
    rare = np.where(np.arange(20_000) < 15, "rare", "common")
    other = right.copy()
    other[np.flatnonzero(right)[:2]] = False  # two of fifteen, by chance
    yield Case(
        "as good, and a slice of 15 rows lost two by chance",
        "as good",
        rows_of(label, right, kind=rare),
        rows_of(label, other, kind=rare),
        slices=("kind",),
    )
    p = random.random(1000)
    good = {"id": np.arange(1000), "label": (random.random(1000) < p) * 1, "probability": p}
    yield Case("calibrated, 1,000 rows", "calibrated", good, good)
    p = random.random(20_000)
    shift = np.where((p * 20).astype(int) % 2 == 0, 0.1, -0.1)
    y = (random.random(20_000) < np.clip(p + shift, 0, 1)) * 1
    bad = {"id": np.arange(20_000), "label": y, "probability": p}
    yield Case("errors of 0.1 that cancel in coarse bins", "not calibrated", bad, bad)


def ask_steptime(case: Case) -> tuple[str, str]:
    metric = "brier" if "probability" in case.old else "accuracy"
    found = steptime.verify_model(
        case.old,
        case.new,
        metric=metric,
        margin=MARGIN,
        slices=case.slices,
        shares=case.shares,
        hunt=case.hunt,
    )
    if "calibrated" in case.truth:
        said = "calibrated" if found.calibration[1].outcome == "PASS" else "not calibrated"
        return (RIGHT if said == case.truth else WRONG), said
    answers = {"PASS": "as good", "FAIL": "worse", "INCONCLUSIVE": "undecided"}
    said = answers[found.outcome.value]
    if found.reason in ("slice_worse", "found_slice_worse"):
        said = "slice worse"
    return (RIGHT if said == case.truth else WRONG), f"{said}, gain {found.gain.estimate:+.3f}"


def ask_evidently(case: Case) -> tuple[str, str]:
    if "probability" in case.old:
        return NONE, "no metric of calibration"
    import pandas as pd
    from evidently import BinaryClassification, DataDefinition, Dataset, Report
    from evidently.metrics import Accuracy
    from evidently.tests import Reference, gte

    target = BinaryClassification(target="label", prediction_labels="prediction")
    how = DataDefinition(classification=[target])
    frames = [pd.DataFrame(rows) for rows in (case.new, case.old)]

    def status(new: Any, old: Any) -> str:
        made = [Dataset.from_pandas(one.reset_index(drop=True), how) for one in (new, old)]
        report = Report([Accuracy(tests=[gte(Reference(absolute=MARGIN))])])
        return str(report.run(*made).dict()["tests"][0]["status"].value)

    whole = status(*frames)
    # Its GroupBy gives the accuracy of all rows for each value (0.7.23), so each has a report.
    parts = [
        status(*(one[one[name] == value] for one in frames))
        for name in case.slices
        for value in sorted(set(frames[0][name]) & set(frames[1][name]))
    ]
    failed = sum(status == "FAIL" for status in parts)
    said = f"whole {whole}, {failed} of {len(parts)} slices FAIL" if parts else f"whole {whole}"
    answer = "worse" if whole == "FAIL" else "slice worse" if failed else "as good"
    return (RIGHT if answer == case.truth else WRONG), said


def ask_fairlearn(case: Case) -> tuple[str, str]:
    if "probability" in case.old:
        return NONE, "no metric of calibration"
    from fairlearn.metrics import MetricFrame
    from sklearn.metrics import accuracy_score

    def frame(rows: dict[str, Any]) -> Any:
        by = rows[case.slices[0]] if case.slices else np.zeros(len(rows["id"]))
        return MetricFrame(
            metrics=accuracy_score,
            y_true=rows["label"],
            y_pred=rows["prediction"],
            sensitive_features=by,
        )

    old, new = frame(case.old), frame(case.new)
    parts = new.by_group - old.by_group
    said = f"whole {new.overall - old.overall:+.3f}"
    if case.slices:
        said += f", slices {parts.min():+.3f} to {parts.max():+.3f}"
    return (WRONG if case.hunt else SHOWN), f"{said}; no answer"


def ask_mapie(case: Case) -> tuple[str, str]:
    if "probability" not in case.old:
        return NONE, "calibration alone"
    from mapie.metrics import calibration as mapie

    y, p = case.new["label"].astype(float), case.new["probability"]
    tests = (mapie.kolmogorov_smirnov_p_value, mapie.kuiper_p_value, mapie.spiegelhalter_p_value)
    values = [float(test(y, p)) for test in tests]
    error = mapie.expected_calibration_error(y, np.column_stack([1 - p, p])[:, 1], num_bins=10)
    said = "not calibrated" if min(values) < 0.05 / 3 else "calibrated"
    shown = ", ".join(f"{one:.2g}" for one in values if math.isfinite(one))
    return (RIGHT if said == case.truth else WRONG), f"p {shown}; ECE {error:.3f}"


TOOLS: dict[str, tuple[str, Callable[[Case], tuple[str, str]]]] = {
    "steptime": ("steptime", ask_steptime),
    "evidently": ("evidently", ask_evidently),
    "fairlearn": ("fairlearn.metrics", ask_fairlearn),
    "MAPIE": ("mapie", ask_mapie),
}


def main() -> None:
    found: dict[str, dict[str, Any]] = {}
    for case in cases():
        print(f"{case.title} (truth: {case.truth})")
        found[case.title] = {"truth": case.truth}
        for tool, (module, ask) in TOOLS.items():
            try:
                import_module(module)
            except ImportError:
                answer, said = "not installed", ""
            else:
                answer, said = ask(case)
            found[case.title][tool] = {"answer": answer, "said": said}
            print(f"  {tool:10} {answer:14} {said}")
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    OUT.write_text(
        json.dumps({**stamp(), "versions": versions, "cases": found}, indent=1) + "\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
