"""Metrics that are no mean of rows, groups, seeds, hunted slices, suites, and the Python call."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("sliceline", reason="the extra verify-model is not installed")
np = pytest.importorskip("numpy", reason="the extra verify-model is not installed")

import steptime  # noqa: E402
from steptime.cli.main import main  # noqa: E402
from steptime.report.blocks.verify.model_report import model_report  # noqa: E402
from steptime.verify.model.hunt import adjust, hunt  # noqa: E402
from steptime.verify.model.judge_model import ModelQuestion, judge_model  # noqa: E402
from steptime.verify.model.metrics import is_loss, scores_of  # noqa: E402
from steptime.verify.model.two_arms import ArmRows, Arms, join  # noqa: E402
from steptime.verify.release.release_question import ReleaseMetric  # noqa: E402
from steptime.verify.values import Outcome  # noqa: E402
from steptime.verify.values.found_slice import Condition  # noqa: E402
from steptime.verify.values.release_verdict import MetricKind  # noqa: E402
from told_blocks import told  # noqa: E402


def made(num: int, *, seed: int = 0) -> dict[str, Any]:
    """Rows of a model whose probabilities order the labels somewhat."""
    random = np.random.default_rng(seed)
    label = (random.random(num) < 0.3).astype(float)
    p = np.round(np.clip(0.3 * label + 0.7 * random.random(num), 0, 1), 2)
    return {"id": np.arange(num), "label": label, "probability": p, "prediction": (p > 0.5) * 1.0}


@pytest.mark.parametrize("metric", ["auc", "f1", "rmse"])
def test_a_metric_of_the_whole_has_the_value_and_the_error_of_the_bootstrap(metric):
    from sklearn import metrics

    def exact(rows: dict[str, Any]) -> float:
        y, p, guess = rows["label"], rows["probability"], rows["prediction"]
        if metric == "auc":
            return float(metrics.roc_auc_score(y, p))
        return float(
            metrics.f1_score(y, guess)
            if metric == "f1"
            else metrics.mean_squared_error(y, guess) ** 0.5
        )

    rows, random = made(400), np.random.default_rng(1)
    drawn = [
        exact({name: one[chosen] for name, one in rows.items()})
        for chosen in (random.integers(0, 400, 400) for _ in range(500))
    ]
    scores = scores_of(metric, rows)

    assert scores.mean() == pytest.approx(exact(rows), abs=1e-12)
    assert scores.std() / 20 == pytest.approx(np.std(drawn), rel=0.12)


def test_an_area_under_the_curve_is_compared_in_pairs_and_by_slice():
    rows = made(2000)
    better = dict(rows, probability=np.clip(rows["probability"] + 0.1 * rows["label"], 0, 1))
    kind = np.array(["a", "b"])[np.arange(2000) % 2]
    found = steptime.verify_model(
        rows | {"kind": kind}, better | {"kind": kind}, metric="auc", margin=0.01, slices=["kind"]
    )

    from sklearn.metrics import roc_auc_score

    assert found.outcome is Outcome.PASS
    assert found.is_paired
    one = next(one for one in found.columns[0].slices if one.name == "a")
    inside = kind == "a"
    assert one.reference == pytest.approx(
        roc_auc_score(rows["label"][inside], rows["probability"][inside])
    )
    apart = steptime.verify_model(rows, dict(better, id=np.arange(2000) + 5000), metric="auc")
    assert (found.gain.high - found.gain.low) < (apart.gain.high - apart.gain.low) / 2


def test_rows_of_a_group_count_as_one():
    random = np.random.default_rng(2)
    users = np.arange(4000) // 40
    shift = random.normal(size=100)[users]  # the same for all rows of a user
    rows = {"id": np.arange(4000), "user": users, "m": np.zeros(4000)}
    other = rows | {"m": shift + 0.01 * random.normal(size=4000)}
    alone = steptime.verify_model(rows, other, metric="m")
    grouped = steptime.verify_model(rows, other, metric="m", group="user")

    def width(one: Any) -> float:
        return one.gain.high - one.gain.low

    means = [other["m"][users == user].mean() for user in range(100)]
    assert grouped.gain.estimate == alone.gain.estimate
    assert width(grouped) / width(alone) == pytest.approx(40**0.5, rel=0.02)
    assert width(grouped) == pytest.approx(2 * 1.6604 * np.std(means, ddof=1) / 10, rel=1e-3)


def seeded(shifts: Any, *, ids: int = 200) -> dict[str, Any]:
    """Rows of as many trainings as there are shifts of the metric."""
    noise = np.random.default_rng(3).normal(size=ids)
    return {
        "id": np.tile(np.arange(ids), len(shifts)),
        "seed": np.repeat(np.arange(len(shifts)), ids),
        "m": np.concatenate([noise + shift for shift in shifts]),
    }


def test_seeds_widen_the_interval_to_other_trainings():
    from scipy.stats import t

    found = steptime.verify_model(
        seeded([0.0, 0.1, -0.1, 0.05]),
        seeded([0.5, 0.6, 0.3, 0.4]),
        metric="m",
        seed="seed",
        margin=0.1,
    )

    assert (found.num_seeds_reference, found.num_seeds_candidate) == (4, 4)
    assert found.gain.estimate == pytest.approx(0.4375)
    spread = [np.std(one, ddof=1) for one in ([0.0, 0.1, -0.1, 0.05], [0.5, 0.6, 0.3, 0.4])]
    error = np.hypot(*spread) / 2
    freedom = 3 * sum(one**2 for one in spread) ** 2 / sum(one**4 for one in spread)
    assert found.gain_on_these_rows.high - 0.4375 == pytest.approx(t.isf(0.05, freedom) * error)
    assert found.outcome is Outcome.PASS


def test_two_seeds_give_estimates_alone():
    found = steptime.verify_model(
        seeded([0.0, 0.1]), seeded([0.5, 0.6]), metric="m", seed="seed", margin=0.1
    )
    assert (found.outcome, found.reason) == (Outcome.INCONCLUSIVE, "too_few_runs")


def test_a_seed_that_was_logged_twice_is_refused_by_name():
    twice = seeded([0.0, 0.1, 0.2])
    twice["seed"] = np.where(twice["seed"] == 2, 1, twice["seed"])
    with pytest.raises(steptime.SteptimeError, match="SeedsReused: the training `1`"):
        steptime.verify_model(twice, seeded([0, 0, 0]), metric="m", seed="seed")
    with pytest.raises(steptime.SteptimeError, match="SeedsReused: two trainings"):
        steptime.verify_model(seeded([0, 1, 2]), seeded([0, 0, 1]), metric="m", seed="seed")


def hunted(loss: float, *, num: int = 6000, seed: int = 4) -> Any:
    """Slices found between two models that differ in one pair of values alone."""
    random = np.random.default_rng(seed)
    codes = {name: random.integers(0, 6, num) for name in ("a", "b", "c")}
    right = (random.random(num) < 0.9).astype(float)
    other = np.where(random.random(num) < 0.1, random.random(num) < 0.9, right).astype(float)
    inside = (codes["a"] == 1) & (codes["b"] == 2)
    other[inside & (random.random(num) < loss)] = 0.0
    ids = np.arange(num)
    arms = [ArmRows(scores=one[None], ids=ids, slices=codes) for one in (right, other)]
    names = {name: tuple("012345") for name in codes}
    return hunt(join(*arms), names, sign=1.0, margin=0.0)


def test_a_slice_that_is_worse_is_found_and_confirmed_on_other_rows():
    found = hunted(0.4)

    assert found.slices[0].conditions == (Condition("a", "1"), Condition("b", "2"))
    assert found.slices[0].is_confirmed
    assert found.slices[0].gain.high < -0.1
    assert found.num_proposing + found.num_judging == 6000


def test_equal_models_have_leads_and_no_findings():
    found = [hunted(0.0, seed=seed) for seed in range(20)]

    assert any(one.slices for one in found)
    assert sum(one.is_confirmed for each in found for one in each.slices) <= 3


def test_probabilities_are_corrected_by_rank_and_none_at_all_is_no_error():
    p = [0.20, 0.001, 0.5, 0.04, 0.03, 0.9]
    from statsmodels.stats.multitest import multipletests

    assert multipletests(p, alpha=0.10, method="fdr_bh")[0].sum() == 3  # of B1
    corrected, method = adjust(p * 4)
    assert method == "bh"
    assert sum(one < 0.10 for one in corrected) == 12
    assert adjust([]) == ([], "holm")
    assert sum(one < 0.05 for one in adjust([0.2, 0.5, 0.9])[0]) == 0


def write(folder: Any, name: str, rows: dict[str, Any]) -> str:
    lines = [",".join(rows)]
    lines += [",".join(map(str, row)) for row in zip(*rows.values(), strict=True)]
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_a_suite_holds_the_options_and_the_command_line_wins(tmp_path, capsys):
    rows = made(300) | {"kind": np.arange(300) % 3}
    write(tmp_path, "old.csv", rows)
    new = write(tmp_path, "new.csv", rows)
    suite = tmp_path / "suite.toml"
    suite.write_text(
        'reference = "old.csv"\nmetric = "accuracy"\nmargin = 0.05\nslice = ["kind"]\n'
        "share.kind = { 0 = 0.5, 1 = 0.25, 2 = 0.25 }\n",
        encoding="utf-8",
    )
    words = ["verify", "model", "--suite", str(suite), "--candidate", new, "--json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)["data"]
    assert found["margin"] == 0.05
    assert [one["share"] for one in found["columns"][0]["slices"]] == [0.5, 0.25, 0.25]
    assert main([*words, "--margin", "0.1"]) == 0
    assert json.loads(capsys.readouterr().out)["data"]["margin"] == 0.1
    assert main([*words, "--margin", "0"]) == 4
    assert json.loads(capsys.readouterr().out)["data"]["margin"] == 0.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("margn = 1", "there is no key `margn`"),
        ('margin = "1"', "`margin` is '1'; it must be a number"),
        ("slice = 'kind'", "`slice` is 'kind'; it must be a list of texts"),
        ("share = 3", "`share` is 3; it must be a table"),
        ("metric = [", "cannot be read as TOML"),
    ],
)
def test_a_wrong_suite_has_one_clear_message(tmp_path, capsys, text, message):
    suite = tmp_path / "suite.toml"
    suite.write_text(text, encoding="utf-8")
    assert main(["verify", "model", "--suite", str(suite)]) == 2
    assert message in capsys.readouterr().err
    assert main(["verify", "model", "--suite", str(tmp_path / "none.toml")]) == 2


def test_a_slice_that_is_worse_fails_what_passes_as_a_whole():
    num = 20_000
    kind = np.where(np.arange(num) % 20 == 0, "rare", "common")
    right = (np.random.default_rng(6).random(num) < 0.9).astype(float)
    other = np.where((kind == "rare") & (np.arange(num) % 3 == 0), 0.0, right)
    rows = {"id": np.arange(num), "m": right, "kind": kind}
    found = steptime.verify_model(
        rows, rows | {"m": other}, metric="m", margin=0.03, slices=["kind"]
    )

    assert found.gain.low > -0.03
    assert (found.outcome, found.reason) == (Outcome.FAIL, "slice_worse")
    allowed = steptime.verify_model(
        rows, rows | {"m": other}, metric="m", margin=0.03, slices=["kind"], slice_margin=0.5
    )
    assert allowed.outcome is Outcome.PASS
    assert allowed.is_allowed_loss


def test_few_rows_have_the_interval_of_student():
    from scipy.stats import t

    m = np.array([0.1, -0.4, 0.3, 0.25, 0.6])
    rows = {"id": np.arange(5), "m": np.zeros(5)}
    found = steptime.verify_model(rows, rows | {"m": m}, metric="m").gain
    reach = t.isf(0.05, 4) * m.std(ddof=1) / 5**0.5
    assert (found.low, found.high) == pytest.approx((m.mean() - reach, m.mean() + reach))


@pytest.mark.parametrize("what", ["group", "seed"])
def test_a_user_or_a_training_in_several_slices_is_still_one(what):
    random, arms = np.random.default_rng(8), []
    for first_id in (0, 1000):
        units = np.arange(900) % 3 if what == "seed" else np.repeat(np.arange(60), 15)
        scores = random.normal(0, 1, units.max() + 1)[units] + random.normal(0, 0.3, 900)
        ids = first_id + (np.arange(900) // 3 if what == "seed" else np.arange(900))
        arms.append({"id": ids, "m": scores, "unit": units, "kind": ids % 5})
    whole = steptime.verify_model(*arms, metric="m", **{what: "unit"}).gain
    fixed = steptime.verify_model(*arms, metric="m", slices=["kind"], **{what: "unit"})
    assert fixed.decided_by == "kind"
    assert fixed.gain.high - fixed.gain.low > 0.95 * (whole.high - whole.low)


@pytest.mark.parametrize("group", [None, "user"])
@pytest.mark.parametrize("metric", ["right", "loss"])
def test_few_equal_rows_prove_nothing_whatever_the_metric(metric, group):
    values = np.ones(30) if metric == "right" else np.linspace(0.1, 1.1, 30)
    rows = {"id": np.arange(30), metric: values, "user": np.arange(30) // 2}
    found = steptime.verify_model(rows, rows, metric=metric, margin=0.005, group=group)
    assert (found.outcome, found.reason) == (Outcome.INCONCLUSIVE, "too_few_rows")


def test_one_row_of_an_arm_decides_nothing():
    rows = {"m": [1.0, 2.0, 3.0, 9.0, 4.0], "arm": list("aabab"), "kind": list("xxyyx")}
    found = steptime.verify_model(
        rows, arm="arm", metric="m", margin=0.1, slices=["kind"], shares={"kind": {"y": 1}}
    )
    one = next(one for one in found.columns[0].slices if one.name == "y")
    assert (one.num_reference, one.num_candidate) == (1, 1)
    assert one.outcome is Outcome.INCONCLUSIVE
    assert found.gain.low < -6 < found.gain.high
    assert found.outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(("num_columns", "outcome"), [(1, "FAIL"), (20, "INCONCLUSIVE")])
def test_a_slice_counts_the_slices_of_all_columns(num_columns, outcome):
    z = np.random.default_rng(9).normal(size=200)
    z = (z - z.mean()) / z.std()
    z[:100] -= z[:100].mean() + 0.3  # three standard errors of a mean
    codes = {f"c{i}": np.arange(200) // 100 for i in range(num_columns)}
    arms = [ArmRows(scores=one[None], slices=codes) for one in (np.zeros(200), z)]
    asked = ModelQuestion(metric="m", margin=0.0, columns=dict.fromkeys(codes, ("a", "b")))
    first = judge_model(Arms(*arms, is_paired=True), asked).columns[0].slices[0]
    assert (first.name, first.outcome.value) == ("a", outcome)


def test_shares_that_are_declared_decide_before_those_that_the_rows_have():
    random = np.random.default_rng(7)
    rows = {
        "m": random.normal(size=2000),
        "arm": np.arange(2000) % 2,
        "x": random.integers(0, 2, 2000),
        "y": random.integers(0, 2, 2000),
    }
    shares = {"y": {"0": 0.9, "1": 0.1}}
    found = steptime.verify_model(rows, arm="arm", metric="m", slices=["x", "y"], shares=shares)
    assert found.decided_by == "y"
    assert found.gain == found.columns[1].standardized


def test_rows_that_one_model_alone_has_keep_it_from_passing():
    right = np.arange(2000) % 10 > 0
    rows = {"id": np.arange(2000), "m": right * 1.0}
    easy = {name: column[right] for name, column in rows.items()}  # the hard ones are gone
    found = steptime.verify_model(rows, easy, metric="m", margin=0.05)
    assert found.gain.low > 0.05
    assert (found.outcome, found.reason) == (Outcome.INCONCLUSIVE, "rows_missing")
    assert "200 rows are in the reference alone, and 0 in" in " ".join(found.notes)


@pytest.mark.parametrize("labels", [[1, 0, 1], ["é", "b", "é"]])
def test_models_that_were_scored_by_other_labels_are_not_compared(labels):
    rows = {"id": [1, 2, 3], "label": labels, "prediction": labels}
    other = rows | {"label": labels[::-1][:1] + labels[1:2] + labels[1:2]}
    with pytest.raises(steptime.SteptimeError, match="RowsDiffer: 1 rows have one label"):
        steptime.verify_model(rows, other, metric="accuracy")


@pytest.mark.parametrize("label", [[1.0, None], ["", "a"], [np.nan, 1.0]])
def test_a_row_without_a_label_is_not_taken_for_right(label):
    rows = {"id": [1, 2], "label": label, "prediction": label}
    with pytest.raises(steptime.SteptimeError, match="NonFiniteMetric: 1 rows have no `label`"):
        steptime.verify_model(rows, rows, metric="accuracy")


@pytest.mark.parametrize(
    ("name", "is_down"),
    [
        ("val_loss", True),
        ("nll", True),
        ("Cross-Entropy", True),
        ("word_error_rate", True),
        ("conversion_rate", False),
        ("lossless", False),
        ("answer", False),
    ],
)
def test_a_loss_is_known_by_its_name(name, is_down):
    assert is_loss(name) is is_down
    assert ReleaseMetric(name=name, kind=MetricKind.KPI, margin=1.0).sign == (-1 if is_down else 1)


@pytest.mark.parametrize("metric", ["m", "auc"])
def test_a_margin_of_a_hundred_percent_is_refused(metric):
    rows = made(50) | {"m": np.arange(50) % 2}
    with pytest.raises(steptime.SteptimeError, match="no loss can be larger than 1"):
        steptime.verify_model(rows, rows, metric=metric, margin=5)


def test_a_row_without_an_arm_is_not_dropped_in_silence():
    rows = {"m": [1.0, 2.0, 3.0], "arm": ["a", None, "b"]}
    with pytest.raises(steptime.SteptimeError, match="1 rows have no `arm`"):
        steptime.verify_model(rows, arm="arm", metric="m")


def test_rare_rows_that_are_far_off_widen_the_interval():
    m = np.zeros(1000)
    m[:10] = 2.0
    rows = {"id": np.arange(1000), "m": np.zeros(1000)}
    found = steptime.verify_model(rows, rows | {"m": m}, metric="m").gain
    plain = 1.6464 * m.std(ddof=1) / 1000**0.5
    skewed = 0.98 / (0.01 * 0.99) ** 0.5 / 1000**0.5  # of a proportion, over the root of n
    assert found.high - found.estimate == pytest.approx(plain * (1 + 0.65 * skewed), rel=1e-3)


def test_of_many_slices_the_worse_and_the_largest_are_listed():
    kind = np.r_[np.arange(1000) % 100, np.full(1000, 100)]
    m = np.random.default_rng(0).normal(size=2000) - 9.0 * (kind == 99)
    rows = {"id": np.arange(2000), "m": np.zeros(2000), "kind": kind}
    found = steptime.verify_model(rows, rows | {"m": m}, metric="m", margin=0.1, slices=["kind"])
    text = told(block for part in model_report(found).parts for block in part.blocks)
    table = text[text.index("share") :].splitlines()
    assert table[1].startswith("99 ")
    assert table[2].startswith("100 ")
    assert "61 more slices" in text
