"""A model is judged by its predictions: planted truths, by known figures and their symmetries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("statsmodels", reason="the extra steptime[verify-model] is not installed")
pa = pytest.importorskip("pyarrow")

from steptime.app.verify.prediction_rows import RowsAsked, read_rows  # noqa: E402
from steptime.cli.main import main  # noqa: E402
from steptime.core.interval import Interval  # noqa: E402
from steptime.errors import DataError  # noqa: E402
from steptime.report.blocks.verify.model_report import model_report  # noqa: E402
from steptime.report.html.paint_html import paint_page  # noqa: E402
from steptime.report.markdown.paint_markdown import paint_markdown  # noqa: E402
from steptime.verify.model.judge_model import ModelQuestion, judge_model  # noqa: E402
from steptime.verify.model.two_arms import ArmRows, Arms, join  # noqa: E402
from steptime.verify.values import Outcome  # noqa: E402
from told_blocks import told  # noqa: E402

Counts = Mapping[str, tuple[tuple[int, int], tuple[int, int]]]
"""By slice: (right, rows) of the reference, and of the candidate."""

# Berkeley 1973: P. J. Bickel, E. A. Hammel, J. W. O'Connell, Science 187, 1975; six departments.
# Women are the reference, men the candidate.
BERKELEY: Counts = {
    "A": ((89, 108), (512, 825)),
    "B": ((17, 25), (353, 560)),
    "C": ((202, 593), (120, 325)),
    "D": ((131, 375), (138, 417)),
    "E": ((94, 393), (53, 191)),
    "F": ((24, 341), (22, 373)),
}
# Kidney stones: C. R. Charig et al., BMJ 292, 1986. B is the reference, A the candidate.
STONES: Counts = {"small": ((234, 270), (81, 87)), "large": ((55, 80), (192, 263))}


def rows_of(scores: Any, ids: Any = None, **how: Any) -> ArmRows:
    """The rows of an arm that was trained once."""
    return ArmRows(scores=scores[None], ids=ids, **how)


def arms_of(counts: Counts, *, times: int = 1, shuffled: bool = False) -> tuple[Arms, list[str]]:
    random, rows = np.random.default_rng(0), []
    for arm in (0, 1):
        right = [(good, num) for good, num in (counts[name][arm] for name in counts)]
        scores = np.concatenate([np.r_[np.ones(g), np.zeros(n - g)] for g, n in right])
        codes = np.repeat(np.arange(len(right)), [num for _, num in right])
        scores, codes = np.tile(scores, times), np.tile(codes, times)
        order = random.permutation(len(scores)) if shuffled else np.arange(len(scores))
        rows.append(rows_of(scores[order], slices={"slice": codes[order]}))
    return join(*rows), list(counts)


def judged(counts: Counts, margin: float | None = None, **how: Any):
    arms, names = arms_of(counts, **how)
    return judge_model(arms, ModelQuestion(metric="right", margin=margin, columns={"slice": names}))


def test_berkeley_is_a_reversal_with_every_known_figure() -> None:
    found = judged(BERKELEY)
    (by,) = found.columns

    assert (found.reference, found.candidate) == pytest.approx((0.3035, 0.4452), abs=5e-5)
    assert (by.raw, by.within, by.mix) == pytest.approx((0.1416, -0.0360, 0.1777), abs=5e-5)
    assert by.is_reversal
    assert by.pooled_odds_ratio == pytest.approx(1.841, abs=5e-4)
    assert by.odds_ratio is not None
    odds = (by.odds_ratio.estimate, by.odds_ratio.low, by.odds_ratio.high)
    assert odds == pytest.approx((0.905, 0.772, 1.060), abs=5e-4)
    assert by.p_association == pytest.approx(0.217, abs=5e-4)
    assert by.p_homogeneous == pytest.approx(0.0021, abs=5e-5)
    assert by.standardized.estimate == pytest.approx(-0.0426, abs=5e-5)
    error = (by.standardized.high - by.standardized.low) / 2 / 1.6449
    assert by.standardized.estimate / error == pytest.approx(-2.33, abs=5e-3)
    assert (found.outcome, found.reason) == (Outcome.INCONCLUSIVE, "no_margin")


def test_kidney_stones_are_a_reversal_and_not_significant() -> None:
    found = judged(STONES, margin=0.01)
    (by,) = found.columns

    assert (by.raw, by.within, by.mix) == pytest.approx((-0.0457, 0.0537, -0.0994), abs=5e-5)
    assert by.odds_ratio is not None
    odds = (by.pooled_odds_ratio, by.odds_ratio.estimate, by.odds_ratio.low, by.odds_ratio.high)
    assert odds == pytest.approx((0.748, 1.447, 0.916, 2.286), abs=5e-4)
    assert (by.p_association, by.p_homogeneous) == pytest.approx((0.119, 0.325), abs=5e-4)
    error = (by.standardized.high - by.standardized.low) / 2 / 1.6449
    assert by.standardized.estimate / error == pytest.approx(1.60, abs=5e-3)
    assert (found.outcome, found.reason) == (Outcome.INCONCLUSIVE, "reversal")


def test_another_mix_of_rows_is_not_taken_for_a_worse_model() -> None:
    counts = {"easy": ((720, 800), (276, 300)), "hard": ((120, 200), (434, 700))}
    arms, names = arms_of(counts)
    asked = ModelQuestion(
        metric="right",
        margin=0.02,
        columns={"slice": names},
        shares={"slice": {"easy": 0.8, "hard": 0.2}},
    )
    found = judge_model(arms, asked)

    assert (found.reference, found.candidate) == pytest.approx((0.84, 0.71))
    assert found.gain.estimate == pytest.approx(0.02)
    assert found.decided_by == "slice"
    assert found.columns[0].is_reversal
    assert found.outcome is Outcome.PASS

    pooled = judge_model(arms, replace(asked, shares={}))
    assert (pooled.outcome, pooled.reason) == (Outcome.INCONCLUSIVE, "reversal")


def test_on_the_same_rows_the_mix_is_exactly_zero_and_pairs_are_told() -> None:
    b, c, n = 160, 140, 10_000
    reference = np.r_[np.ones(b), np.zeros(c), np.ones(n - b - c)]
    candidate = np.r_[np.zeros(b), np.ones(c), np.ones(n - b - c)]
    codes = np.arange(n) % 3
    ids = np.arange(n)
    other = np.random.default_rng(1).permutation(n)
    arms = join(
        rows_of(reference, ids, slices={"k": codes}),
        rows_of(candidate[other], ids[other], slices={"k": codes[other]}),
    )
    asked = ModelQuestion(metric="right", margin=0.005, columns={"k": ["a", "b", "c"]})
    found = judge_model(arms, asked)

    assert found.is_paired
    assert found.columns[0].mix == 0
    assert (found.num_fixed, found.num_broken) == (c, b)
    assert found.gain.estimate == pytest.approx(-0.002)
    assert (found.gain.high - found.gain.low) / 2 / 1.6449 == pytest.approx(0.00173, abs=5e-6)
    assert found.p_not_worse == pytest.approx(0.042, abs=5e-4)
    assert found.outcome is Outcome.PASS


@pytest.mark.parametrize("counts", [BERKELEY, STONES])
def test_estimates_know_no_order_and_mirror_when_the_arms_are_swapped(counts: Counts) -> None:
    plain, shuffled = judged(counts).columns[0], judged(counts, shuffled=True).columns[0]
    swapped = judged({k: (b, a) for k, (a, b) in counts.items()}).columns[0]
    many = judged(counts, times=10).columns[0]

    bare = Interval(estimate=0.0, low=0.0, high=0.0, n=0)
    told = [replace(one, slices=(), standardized=bare) for one in (plain, shuffled)]
    assert told[0] == told[1]
    for name in ("estimate", "low", "high"):
        assert getattr(shuffled.standardized, name) == pytest.approx(
            getattr(plain.standardized, name)
        )
    assert swapped.raw == pytest.approx(-plain.raw)
    assert swapped.within == pytest.approx(-plain.within)
    assert swapped.standardized.estimate == pytest.approx(-plain.standardized.estimate)
    width = plain.standardized.high - plain.standardized.low
    assert many.standardized.high - many.standardized.low == pytest.approx(width / 10**0.5)


def test_a_loss_within_the_margin_is_seen() -> None:
    random = np.random.default_rng(2)
    reference = random.normal(size=40_000)
    arms = join(rows_of(reference, np.arange(40_000)), rows_of(reference - 0.01, np.arange(40_000)))
    found = judge_model(arms, ModelQuestion(metric="score", margin=0.05))

    assert (found.outcome, found.is_allowed_loss) == (Outcome.PASS, True)
    assert "significantly worse than reference, but within the margin" in shown(found)


@pytest.mark.parametrize(
    ("num", "outcome"), [(20, "INCONCLUSIVE"), (260, "INCONCLUSIVE"), (280, "PASS")]
)
def test_few_rows_without_a_difference_are_no_proof(num: int, outcome: str) -> None:
    ids = np.arange(num)
    arms = join(rows_of(np.ones(num), ids), rows_of(np.ones(num), ids))
    found = judge_model(arms, ModelQuestion(metric="right", margin=0.01))

    assert found.outcome.value == outcome
    assert found.gain.low == pytest.approx(-2.706 / (num + 2.706), rel=1e-3)  # Tango, 5 %
    unlike = join(rows_of(np.ones(num)), rows_of(np.ones(num)))
    assert judge_model(unlike, ModelQuestion(metric="right", margin=0.01)).gain.low < -0.009


def test_too_few_rows_say_how_many_would_decide() -> None:
    found = judged({"x": ((40, 50), (38, 50))}, margin=0.05)

    assert (found.outcome, found.reason) == (Outcome.INCONCLUSIVE, "too_few_rows")
    assert found.num_needed is not None
    assert found.num_needed > 100
    assert "would decide" in shown(found)


def test_what_cannot_be_compared_is_refused_by_name() -> None:
    ids = np.arange(3)
    good = rows_of(np.ones(3), ids)
    with pytest.raises(DataError, match=r"NonFiniteMetric: .* 1 of 3 rows of the candidate"):
        join(good, rows_of(np.array([1.0, np.nan, 1.0]), ids))
    with pytest.raises(DataError, match=r"NonFiniteMetric: .* up to 1e\+60 in 1 of 3 rows"):
        join(good, rows_of(np.array([1.0, 1e300, 1.0]), ids))
    with pytest.raises(DataError, match="1 rows of the candidate arm have an id that stands there"):
        join(good, rows_of(np.ones(3), np.array([0, 1, 1])))
    with pytest.raises(DataError, match="RowsDiffer: 1 rows of the reference are missing"):
        join(good, rows_of(np.ones(2), ids[:2]), must_pair=True)
    with pytest.raises(DataError, match="RowsDiffer: the rows have no id"):
        join(rows_of(np.ones(3)), rows_of(np.ones(3)), must_pair=True)
    with pytest.raises(DataError, match="EmptySlice: the reference arm has no rows"):
        join(rows_of(np.ones(0)), good)


def shown(found) -> str:
    return told(block for part in model_report(found).parts for block in part.blocks)


def test_the_report_names_the_reversal_in_text_markdown_and_page() -> None:
    found = judged(STONES, margin=0.01)
    report = model_report(found)

    for text in (shown(found), paint_markdown(report), paint_page(report)):
        assert "REVERSAL" in text
        assert "Mantel-Haenszel" in text
        assert "INCONCLUSIVE" in text


# -- tables, and the command


def write_csv(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def test_two_tables_are_joined_by_id_and_never_by_order(tmp_path: Path) -> None:
    old = write_csv(tmp_path / "old.csv", ["id,label,prediction", "a,1,1", "b,0,1", "c,1,1"])
    new = write_csv(tmp_path / "new.csv", ["id,label,prediction", "c,1,1", "a,1,0", "b,0,0"])
    found = read_rows(RowsAsked(reference=old, candidate=new, metric="accuracy"))

    assert found.arms.is_paired
    assert found.arms.reference.scores.tolist() == [[1, 0, 1]]
    assert found.arms.candidate.scores.tolist() == [[0, 1, 1]]


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather", "jsonl"])
def test_each_format_gives_the_same_verdict(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyarrow import csv, feather, parquet

    rows = [
        {"arm": arm, "right": right, "dept": name}
        for name, counts in STONES.items()
        for arm, (good, num) in zip("BA", counts, strict=True)
        for right in [1] * good + [0] * (num - good)
    ]
    table, path = pa.Table.from_pylist(rows), tmp_path / f"rows.{kind}"
    if kind == "csv":
        csv.write_csv(table, path)
    elif kind == "parquet":
        parquet.write_table(table, path)
    elif kind == "feather":
        feather.write_feather(table, path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["verify", "model", str(path), "--arm", "arm", "--metric", "right", "--slice", "dept"]

    assert main([*words, "--margin", "0.01", "--json"]) == 4
    data = json.loads(capsys.readouterr().out)["data"]
    assert (data["outcome"], data["reason"]) == ("INCONCLUSIVE", "reversal")
    assert data["notes"] == ["reference_is_first", "unpaired", "pooled_shares"]
    assert data["columns"][0]["within"] == pytest.approx(0.0537, abs=5e-5)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["rows.csv", "--metric", "m"], "--arm is missing"),
        (["--reference", "rows.csv", "--metric", "m"], "the rows are missing"),
        (["rows.csv", "--arm", "arm", "--metric", "nope"], "has no column `nope`; it has `arm`"),
        (["rows.csv", "--arm", "m", "--metric", "m"], "`m` has 3 values"),
        (["none.csv", "--arm", "arm", "--metric", "m"], "there is no file `none.csv`"),
        (["rows.csv", "--arm", "arm", "--metric", "m", "--id", "k"], "has no column `k`"),
        (["rows.csv", "--arm", "arm", "--metric", "m", "--margin", "-1"], "it must be a size"),
        (
            ["rows.csv", "--arm", "arm", "--metric", "m", "--share", "k=x:1"],
            "a share is given of `k`, which is no slice",
        ),
    ],
)
def test_wrong_usage_has_one_clear_message(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "rows.csv", ["arm,m", "a,1", "a,2", "b,3"])

    assert main(["verify", "model", *words]) == 2
    assert text in " ".join(capsys.readouterr().err.split())
