"""A model beside its training, people and simple predictors: planted truths, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("sklearn", reason="the extra steptime[verify-model] is not installed")
pa = pytest.importorskip("pyarrow")

from pyarrow import csv  # noqa: E402

import steptime  # noqa: E402
from steptime.app.verify.model_checks import compare_tables  # noqa: E402
from steptime.cli.main import main  # noqa: E402
from steptime.errors import DataError  # noqa: E402
from steptime.verify.model.human_labels import count_preferences, judge_humans  # noqa: E402
from steptime.verify.model.simple_predictors import (  # noqa: E402
    judge_simple,
    score_of,
)
from steptime.verify.values import Outcome  # noqa: E402

# -- simple predictors


class Rows(NamedTuple):
    columns: dict[str, Any]
    labels: Any


def judged(train: Rows, rows: Rows, scores: Any, **asked: Any):
    columns = {name: (values, rows.columns[name]) for name, values in train.columns.items()}
    return judge_simple(columns, train.labels, rows.labels, scores, **asked)


def make_rows(num: int, seed: int, **more: Any) -> Rows:
    """A label that a column shows with some noise, beside columns that show nothing."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, size=num).astype(float)
    columns = {
        "c": labels + random.normal(0, 0.4, size=num),
        "other": random.normal(size=num),
        "land": random.choice(["de", "日本"], size=num),
        "free": np.array([f"text {i}" for i in range(num)]),
    }
    return Rows(columns=columns | more, labels=labels)


def simple(metric: str, prediction: Any, *, is_better_down: bool = False, **asked: Any):
    train, rows = make_rows(1000, 1), make_rows(1500, 2)
    scores = score_of(metric, rows.labels, prediction(rows))
    return judged(train, rows, scores, metric=metric, is_better_down=is_better_down, **asked)


def test_a_model_that_a_single_column_matches_adds_nothing() -> None:
    found = simple("accuracy", lambda rows: (rows.columns["c"] > 0.5) * 1.0, margin=0.02)
    best = found.rows[found.best]

    assert (best.kind, best.column, found.outcome) == ("one_column", "c", Outcome.FAIL)
    assert found.left_out == ("free",)
    assert [row.kind for row in found.rows] == [
        *("model", "most_common", "stratified", "one_column", "neighbor")
    ]


@pytest.mark.parametrize(
    ("metric", "is_down"),
    [("accuracy", False), ("brier", True), ("auc", False), ("squared_error", True)],
)
def test_a_model_that_knows_more_is_better_than_each_simple_predictor(
    metric: str, *, is_down: bool
) -> None:
    found = simple(metric, lambda rows: rows.labels, is_better_down=is_down)

    assert found.outcome is Outcome.PASS
    assert all(row.gain is None or row.gain.estimate > 0 for row in found.rows)


def test_the_last_value_before_a_row_is_a_simple_predictor() -> None:
    time = np.arange(400.0)
    labels = np.floor(time / 40) % 2
    train = Rows(columns={"t": time[::2]}, labels=labels[::2])
    rows = Rows(columns={"t": time[1::2]}, labels=labels[1::2])
    found = judged(
        train, rows, np.zeros(200), metric="absolute_error", is_better_down=True, time="t"
    )

    (last,) = (row for row in found.rows if row.kind == "last_value")
    assert (last.column, last.mean) == ("t", 0.0)


def test_training_rows_of_one_class_are_refused_by_name() -> None:
    rows = make_rows(100, 1)
    with pytest.raises(DataError, match="OneClassOnly"):
        judged(rows._replace(labels=np.ones(100)), rows, np.ones(100), metric="accuracy")


def test_one_row_tells_nothing_and_unlike_labels_are_refused() -> None:
    train, rows = make_rows(100, 1), make_rows(1, 2)
    found = judged(train, rows, np.zeros(1), metric="accuracy", margin=0.1)
    assert found.outcome is Outcome.INCONCLUSIVE

    train = Rows(columns=train.columns, labels=np.arange(100) / 7)
    with pytest.raises(DataError, match="hardly a label of the training repeats"):
        judged(train, rows, np.zeros(1), metric="accuracy")


def test_features_without_a_value_are_no_failure() -> None:
    odd = {"nan": np.full(1000, np.nan), "inf": np.full(1000, np.inf), "mixed": np.zeros(1000)}
    other = odd | {"mixed": np.full(1000, "x")}
    train, rows = make_rows(1000, 1, **odd), make_rows(1000, 2, **other)
    scores = score_of("log_loss", rows.labels, np.full(1000, 0.5))

    found = judged(train, rows, scores, metric="log_loss", is_better_down=True)
    assert found.outcome is Outcome.FAIL


# -- people


def test_people_who_do_not_agree_are_no_baseline() -> None:
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, size=500).astype(str)
    noise = random.integers(0, 2, size=(2, 500)).astype(str)
    found = judge_humans(labels, {"a": noise[0], "b": noise[1]}, np.ones(500))

    assert (found.outcome, found.reason) == (Outcome.INCONCLUSIVE, "people_disagree")
    assert found.kappa == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize("num", [2, 3])
def test_the_model_is_compared_with_people_who_agree(num: int) -> None:
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, size=600)
    said = {
        f"p{i}": np.where(random.random(600) < 0.9, labels, (labels + 1) % 3).astype(str)
        for i in range(num)
    }
    found = judge_humans(labels.astype(str), said, np.ones(600))

    assert found.kappa == pytest.approx(0.72, abs=0.05)  # 0.81 + 0.01 agree, a third by chance
    assert found.outcome is None
    assert found.gain is not None
    assert found.gain.estimate == pytest.approx(0.1, abs=0.03)


def test_few_rows_or_one_person_are_no_baseline() -> None:
    said = np.array(["a", "b"] * 50)
    assert judge_humans(said, {"p": said}, np.ones(100)).reason == "one_labeler"
    assert judge_humans(said, {"p": said, "q": said}, np.ones(100)).reason == "few_shared"


def test_preferences_are_counted_without_ties() -> None:
    said = np.array(["candidate"] * 15 + ["reference"] * 5 + ["tie"] * 10)
    found = count_preferences("pref", said)

    assert (found.candidate, found.reference, found.num_ties) == (15, 5, 10)
    assert found.gain.estimate == 0.75
    assert found.p == pytest.approx(0.0414, abs=5e-5)
    with pytest.raises(DataError, match="`pref` holds `new`"):
        count_preferences("pref", np.array(["new"]))


def test_a_person_may_leave_rows_out() -> None:
    label = np.arange(400) % 2
    some = [None if i < 100 else float(value) for i, value in enumerate(label)]
    rows = {"id": np.arange(400), "label": label, "prediction": label, "a": label, "b": some}
    found = steptime.verify_model(rows, rows, metric="accuracy", margin=0.1, human=["a", "b"])

    assert found.outcome is Outcome.PASS
    assert (found.checks.human.num_shared, found.checks.human.kappa) == (300, 1.0)


# -- leaks


def make_table(num: int, seed: int, *, begin: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    words = np.array([f"w{i}" for i in range(2000)])
    return {
        "id": np.arange(begin, begin + num),
        "x": random.normal(size=num).tolist(),
        "note": [" ".join(words[random.integers(0, 2000, size=20)]) for _ in range(num)],
        "label": random.integers(0, 2, size=num),
    }


def leaks(train: dict[str, Any], rows: dict[str, Any]):
    names = [name for name in train if name not in ("id", "label")]
    id_column = "id" if "id" in train else None
    found = compare_tables(pa.table(train), pa.table(rows), names, id_column=id_column)
    return found, {one.kind: one for one in found.counts}


def test_rows_that_were_copied_into_the_training_are_counted() -> None:
    train, rows = make_table(2000, 1, begin=0), make_table(1000, 2, begin=5000)
    for i in range(50):
        train["x"][40 * i], train["note"][40 * i] = rows["x"][20 * i], rows["note"][20 * i]
    train["id"] = train["id"] + 2**60  # no float tells these apart
    rows["id"] = rows["id"] + 2**60
    train["id"][7] = rows["id"][3]
    found, counts = leaks(train, rows)

    assert found.outcome is Outcome.FAIL
    assert (counts["id"].num_found, counts["exact"].num_found) == (1, 50)
    assert (counts["near"].num_found, counts["text"].num_found) == (0, 0)
    assert counts["exact"].examples[0] == str(2**60 + 5000)


def test_rows_that_are_nearly_the_same_are_counted() -> None:
    train, rows = make_table(2000, 1, begin=0), make_table(1000, 2, begin=5000)
    for i in range(10):
        train["x"][i], train["note"][i] = rows["x"][i] * (1 + 1e-9), f" {rows['note'][i].upper()}"
        train["note"][100 + i] = rows["note"][500 + i][:-4] + " and"
    found, counts = leaks(train, rows)

    assert found.outcome is Outcome.FAIL
    assert [counts[kind].num_found for kind in ("id", "exact", "near", "text")] == [0, 0, 10, 10]


def test_rows_that_repeat_by_nature_are_no_leak() -> None:
    random = np.random.default_rng(0)
    train, rows = ({"x": random.integers(0, 9, size=n).tolist()} for n in (900, 300))
    found, counts = leaks(train, rows)

    assert counts["exact"].num_found == 300
    assert found.outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_few_rows_that_are_alike_by_chance_are_no_leak(*, is_whole: bool) -> None:
    random = np.random.default_rng(1)
    sizes = (3000, 4000)
    train, rows = (
        {
            name: random.integers(0, 3000, n) if is_whole else random.normal(size=n)
            for name in ("a", "b")
        }
        for n in sizes
    )
    found, counts = leaks(train, rows)

    assert sum(one.num_found for one in counts.values()) in range(1, 40)
    assert found.outcome is Outcome.INCONCLUSIVE
    ids = ({**one, "id": np.arange(len(one["a"])) + at} for one, at in ((train, 0), (rows, 9000)))
    assert leaks(*ids)[0].outcome is Outcome.PASS


# -- the command

MODEL = "import numpy as np\n\ndef predict(rows):\n    return 1 / (1 + np.exp(-rows['c']))\n"
PROBES = ("INV:column=other,change=permute", "DIR:column=c,change=add,size=1,expect=up")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tables of a model that beats every simple predictor, and its function."""
    monkeypatch.chdir(tmp_path)
    for name, num, seed in (("train", 800, 1), ("test", 600, 2)):
        rows = make_rows(num, seed)
        ids = np.arange(num) + 10_000 * seed
        table = pa.table({"id": ids, **rows.columns, "label": rows.labels.astype(int)})
        csv.write_csv(table, tmp_path / f"{name}.csv")
        random = np.random.default_rng(5)
        for arm, right in (("old", 0.97), ("new", 0.98)):
            prediction = np.where(random.random(num) < right, rows.labels, 1 - rows.labels)
            more = {"said": rows.labels.astype(int), "also": random.normal(size=num)}
            table = pa.table({"id": ids, "label": rows.labels, "prediction": prediction, **more})
            csv.write_csv(table.take(random.permutation(num)), tmp_path / f"{arm}.csv")
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


WORDS = ("verify", "model", "--reference", "old.csv", "--candidate", "new.csv")
COMPARED = (*WORDS, "--metric", "accuracy", "--margin", "0.05")
BESIDE = ("--train", "train.csv", "--inputs", "test.csv")


def test_a_candidate_passes_with_everything_that_is_asked(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    probes = [word for probe in PROBES for word in ("--probe", probe)]
    told = [*COMPARED, *BESIDE, "--predict", "model.py:predict", *probes, "--also", "also"]
    people = ["--human", "said", "--human", "label"]

    assert main([*told, *people, "-o", "page.html", "--json", "answer.json"]) == 0
    text = capsys.readouterr().out
    data = json.loads((place / "answer.json").read_text())["data"]["checks"]
    assert {"invariance permute other", "direction add c"} == {
        one["name"] for one in data["probes"]["results"]
    }
    for word in ("column `c`", "same features: 0 of 600 rows", "agreement κ 1.00"):
        assert word in " ".join(text.split())
    assert "Probes" in (place / "page.html").read_text(encoding="utf-8")


def test_a_program_asks_the_same_with_functions_and_arrays() -> None:
    train, rows = make_rows(800, 1), make_rows(600, 2)
    old, new = (
        {"id": np.arange(600), "label": rows.labels, "prediction": np.where(hit, rows.labels, 2)}
        for hit in (np.arange(600) % 50 > 1, np.arange(600) % 50 > 0)
    )
    asked = {
        "train": {"id": np.arange(800) + 1000, **train.columns, "label": train.labels},
        "inputs": {"id": np.arange(600), **rows.columns},
        "predict": lambda columns: 1 / (1 + np.exp(-columns["c"])),
        "probes": [{"kind": "DIR", "column": "c", "change": "add", "expect": "up"}, PROBES[0]],
        "preference": ["pref"],
        "human": ["label"],
    }
    calls = list[str]()

    def score() -> dict[str, Any]:
        calls.append("new")
        return new

    new["pref"] = np.where(np.arange(600) % 3, "candidate", "reference")
    found = steptime.verify_model(
        old, score, metric="accuracy", margin=0.05, require=["preferred"], **asked
    )

    assert (found.outcome, found.reason) == (Outcome.INCONCLUSIVE, "no_human_baseline")
    assert found.checks is not None
    assert [one.outcome for one in found.checks.probes.results] == [Outcome.PASS] * 2
    assert found.checks.simple.outcome is Outcome.PASS
    asked.pop("human")
    again = steptime.verify_model(
        old, score, metric="accuracy", margin=0.05, require=["preferred"], **asked
    )
    assert again.outcome is Outcome.PASS
    assert calls == ["new"] * 2


@pytest.mark.parametrize(
    ("num", "true", "outcome", "reason"),
    [
        (4000, 0.9, Outcome.PASS, None),
        (4000, 0.7, Outcome.FAIL, "calibrated_fails"),
        (30, 0.9, Outcome.INCONCLUSIVE, "calibrated_undecided"),
    ],
)
def test_calibration_decides_where_it_is_required(
    num: int, true: float, outcome: Outcome, reason: str | None
) -> None:
    random = np.random.default_rng(0)
    label = (random.random(num) < true).astype(int)
    rows = {"id": np.arange(num), "label": label, "probability": np.full(num, 0.9)}
    question = {"metric": "brier", "margin": 0.1}

    assert steptime.verify_model(rows, rows, **question).outcome is Outcome.PASS
    found = steptime.verify_model(rows, rows, require="calibrated", **question)
    assert (found.outcome, found.reason) == (outcome, reason)


@pytest.mark.parametrize(
    ("said", "required", "outcome", "reason"),
    [
        ("reference", "preferred", Outcome.FAIL, "preferred_fails"),
        ("tie", "preferred", Outcome.INCONCLUSIVE, "preferred_undecided"),
        ("tie", "human", Outcome.INCONCLUSIVE, "human_undecided"),
    ],
)
def test_what_people_say_decides_where_it_is_required(
    said: str, required: str, outcome: Outcome, reason: str
) -> None:
    rows = {"id": np.arange(50), "m": np.ones(50), "pref": np.full(50, said)}
    found = steptime.verify_model(
        rows, rows, metric="m", margin=0.1, preference=["pref"], require=[required]
    )

    assert (found.outcome, found.reason) == (outcome, reason)


def test_a_suite_holds_probes_with_files_beside_it(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "suite.toml").write_text(
        'metric = "accuracy"\nmargin = 0.05\ninputs = "test.csv"\npredict = "model.py:predict"\n'
        'require = ["calibrated"]\n'
        '[[probe]]\nkind = "perturbation"\ncolumn = "c"\nchange = "noise"\ndoses = [0.1, 0.3, 1]\n'
        '[[probe]]\nkind = "DIR"\nexpect = "down"\nchange = "model.py:lower"\n'
    )
    lower = "def lower(rows):\n    return {**rows, 'c': rows['c'] + 1}\n"
    (place / "model.py").write_text(MODEL + lower)

    assert main([*WORDS, "--suite", "suite.toml", "--format", "md"]) == 5
    text = " ".join(capsys.readouterr().out.split())
    assert "a probe failed: direction" in text
    assert "| dose | retained |" in text


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--probe", PROBES[0]], 2, "--probe has no effect without --predict"),
        (["--predict", "model.py:predict"], 2, "--predict has no effect without --probe"),
        (["--python", "python"], 2, "--python has no effect without --predict"),
        (["--require", "fast"], 2, "--require: there is no check `fast`"),
        (["--time", "t"], 2, "--time has no effect without --train"),
        ([*BESIDE, "--time", "t"], 2, "there is no feature `t` that both tables have"),
        (["--train", "none.csv"], 2, "there is no file `none.csv`"),
        (["--train", "train.csv"], 2, "the training shares no feature with the evaluation rows"),
        (["--human", "nobody"], 2, "there is no column `nobody`"),
        (["--preference", "also"], 1, "a preference is candidate, reference or tie"),
        ([*BESIDE, "--predict", "model:f", "--probe", PROBES[0]], 2, "Write FILE.py:FUNCTION"),
        ([*BESIDE, "--predict", "model.py:f", "--probe", PROBES[0]], 3, "has no function `f`"),
        ([*BESIDE, "--predict", "no.py:f", "--probe", PROBES[0]], 2, "there is no file `no.py`"),
        (["--train", "train.csv", "--inputs", "train.csv"], 1, "RowsDiffer: 600 rows"),
    ],
)
def test_wrong_usage_is_one_clear_message(
    place: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, text: str
) -> None:
    assert main([*COMPARED, *words]) == code
    assert text in " ".join(capsys.readouterr().err.split())
