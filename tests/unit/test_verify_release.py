"""A release is decided by planted truths: each rule flips the decision, and says why."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("ville", reason="the extra steptime[verify-model] is not installed")
pytest.importorskip("pyarrow")

from steptime.app.verify.release.release_tables import read_question  # noqa: E402
from steptime.cli.main import main  # noqa: E402
from steptime.errors import DataError  # noqa: E402
from steptime.report.blocks.verify.release_report import release_report  # noqa: E402
from steptime.report.html.paint_html import paint_page  # noqa: E402
from steptime.report.markdown.paint_markdown import paint_markdown  # noqa: E402
from steptime.verify.model.signed_gains import SignedGain  # noqa: E402
from steptime.verify.release.judge_release import judge_release  # noqa: E402
from steptime.verify.release.proxy import judge_rung  # noqa: E402
from steptime.verify.release.release_question import (  # noqa: E402
    LedgerEntry,
    MetricExperiment,
    ReleaseMetric,
    ReleaseQuestion,
)
from steptime.verify.release.sequential import sequential_gain  # noqa: E402
from steptime.verify.release.still import judge_still  # noqa: E402
from steptime.verify.values import Outcome, QualityCheck  # noqa: E402
from steptime.verify.values.release_verdict import MetricKind, ReleaseVerdict  # noqa: E402
from told_blocks import told  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "examples" / "release"
PROXY = ReleaseMetric(name="s", kind=MetricKind.ACCEPTANCE, team="a", margin=3.0, proxy_for="y")
TARGET = ReleaseMetric(name="y", kind=MetricKind.KPI, margin=3.0)


# -- proxies: effects in standard errors, as in X1 and X2


def weak(random: Any, num: int = 40) -> list[MetricExperiment]:
    """True correlation 0, half a standard error in size, noise that is shared by 0.8."""
    true = random.normal(0, 0.5, (num, 2))
    noise = random.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], num)
    return [experiment(f"past {i}", *row) for i, row in enumerate(true + noise)]


def degraded(random: Any, slope: float, num: int = 12) -> list[MetricExperiment]:
    """Kinds that cost the proxy 3 to 12 standard errors, and two A/A experiments."""
    sizes = -np.linspace(3, 12, num)
    noise = random.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], num + 2)
    made = [
        experiment(f"d{i}", size + e[0], slope * size + e[1], kind=f"kind {i}", dose=1.0)
        for i, (size, e) in enumerate(zip(sizes, noise, strict=False))
    ]
    return [*made, *(experiment(f"aa{i}", *noise[-i], dose=0.0) for i in (1, 2))]


def experiment(name: str, s: float, y: float, **facts: Any) -> MetricExperiment:
    gains = {"s": SignedGain(s, 1.0, 1000), "y": SignedGain(y, 1.0, 1000)}
    return MetricExperiment(name=name, gains=gains, **facts)


def test_weak_experiments_invent_no_proxy() -> None:
    naive, outcomes = [], set()
    for seed in range(20):
        rung = judge_rung(PROXY, TARGET, weak(np.random.default_rng(seed)), noise=0.8)
        assert rung.naive_correlation is not None
        naive.append(rung.naive_correlation)
        outcomes.add((rung.outcome, rung.reason))

    assert outcomes == {(Outcome.INCONCLUSIVE, "weak_experiments")}
    assert np.median(naive) == pytest.approx(0.65, abs=0.05)


@pytest.mark.parametrize(
    ("slope", "outcome", "reasons"),
    [
        (1.0, Outcome.PASS, {None}),
        (0.0, Outcome.FAIL, {"no_consequence", "no_correlation"}),
    ],
)
def test_degradations_show_a_proxy_and_refute_another(
    slope: float, outcome: Outcome, reasons: set[str | None]
) -> None:
    found, slopes = [], []
    for seed in range(20):
        random = np.random.default_rng(seed)
        made = [*weak(random), *degraded(random, slope)]
        rung = judge_rung(PROXY, TARGET, made, noise=0.8)
        found.append((rung.outcome, rung.reason))
        assert rung.slope is not None
        slopes.append(rung.slope.estimate)

    right = [one for one in found if one[0] is outcome and one[1] in reasons]
    assert len(right) >= 18, found
    assert not [one for one in found if {one[0], outcome} == {Outcome.PASS, Outcome.FAIL}]
    assert np.median(slopes) == pytest.approx(slope, abs=0.05)


def test_doses_of_one_kind_tell_no_more_than_one() -> None:
    effects = np.random.default_rng(1).normal(0, 20, (8, 2))
    widths = []
    for doses in (1, 4):
        made = [
            experiment(f"{i}, {dose}", s, s + y, kind=f"kind {i}", dose=1.0 + dose)
            for i, (s, y) in enumerate(effects)
            for dose in range(doses)
        ]
        found = judge_rung(PROXY, TARGET, made, noise=0.0).correlation
        assert found is not None
        widths.append(found.estimate - found.low)
    assert widths[1] == pytest.approx(widths[0], rel=0.05)


def test_kinds_and_lags_and_segments_are_read() -> None:
    def one(dose: float, kind: str) -> MetricExperiment:
        gains = {"s": SignedGain(-dose, 0.1, 9), "y": SignedGain(-dose, 0.1, 9)}
        lags = {1.0: SignedGain(dose, 0.1, 9), 7.0: SignedGain(-dose, 0.1, 9)}
        flipped = {"s": SignedGain(-dose, 0.1, 9), "y": SignedGain(dose, 0.1, 9)}
        parts = {"new": flipped, "old": gains}
        name = f"{kind} {dose}"
        return MetricExperiment(
            name=name, kind=kind, dose=dose, gains=gains, by_lag={"y": lags}, by_segment=parts
        )

    made = [one(dose, kind) for kind in "abcdef" for dose in (1.0, 2.0, 3.0)]
    rung = judge_rung(PROXY, TARGET, [*made, one(0.0, "")], noise=0.0)

    assert (rung.outcome, rung.lag) == (Outcome.PASS, 7.0)
    assert (rung.num_kinds_agree, rung.num_kinds) == (6, 6)
    assert rung.p_direction == pytest.approx(1 / 64)
    assert (rung.fragility_rate, rung.directional_accuracy) == (0.5, 1.0)
    assert rung.reliability == pytest.approx(0.6 + 0.2 + 0.1)
    assert rung.segment_flips == {"new": 1.0, "old": 0.0}


# -- the decision: the example ships, and each rule flips it

SHIPS = read_question(EXAMPLE / "release.toml")
Change = Callable[[ReleaseQuestion], ReleaseQuestion]


def gains(**changed: tuple[float, float]) -> Change:
    found = {name: SignedGain(*gain, 1000) for name, gain in changed.items()}
    return lambda asked: replace(asked, measured={**asked.measured, **found})


def damage(metric: str, effect: float) -> Change:
    """A degraded ranker does this to a metric, at every dose."""

    def one(found: MetricExperiment) -> MetricExperiment:
        if found.component != "ranker":
            return found
        return replace(found, gains={**found.gains, metric: SignedGain(effect, 0.001, 5000)})

    return lambda asked: replace(asked, experiments=tuple(map(one, asked.experiments)))


def metrics(**changed: dict[str, Any] | None) -> Change:
    """Some metrics have other keys; None takes one out."""

    def change(asked: ReleaseQuestion) -> ReleaseQuestion:
        kept = [one for one in asked.file.metrics if changed.get(one.name, {}) is not None]
        found = tuple(replace(one, **(changed.get(one.name) or {})) for one in kept)
        return replace(asked, file=replace(asked.file, metrics=found))

    return change


def checked(outcome: Outcome) -> Change:
    check = QualityCheck(name="leak", outcome=outcome)
    return lambda asked: replace(asked, checks=(check,))


def eroded(asked: ReleaseQuestion) -> ReleaseQuestion:
    entries = [LedgerEntry(release=x, reference="r", gains={"ndcg": -0.02}) for x in ("a", "b")]
    return replace(asked, ledger=tuple(entries))


RED_KPI = gains(retention=(-0.04, 0.003))
NOT_YET, FAIL, PASS = Outcome.INCONCLUSIVE, Outcome.FAIL, Outcome.PASS
FLIPS: dict[str, tuple[Sequence[Change], Outcome, set[str]]] = {
    "nothing": ([], PASS, set()),
    "no own metric is better": (
        [gains(ndcg=(0.002, 0.003), search_success=(0, 0.01))],
        NOT_YET,
        {"no_gain"},
    ),
    "all own metrics are worse": (
        [gains(ndcg=(-0.005, 0.001), search_success=(-0.01, 0.002))],
        FAIL,
        {"no_gain"},
    ),
    "another own metric is worse": ([gains(search_success=(-0.06, 0.01))], FAIL, {"own_worse"}),
    "another own metric may be worse": (
        [gains(search_success=(-0.024, 0.01))],
        NOT_YET,
        {"own_worse"},
    ),
    "a colleague's metric is worse": ([gains(ad_quality=(-0.06, 0.01))], FAIL, {"colleague_moved"}),
    "a colleague's metric is better": ([gains(ad_quality=(0.06, 0.01))], FAIL, {"colleague_moved"}),
    "a colleague's metric is gray, but not shown still": (
        [gains(ad_quality=(0, 0.02))],
        NOT_YET,
        {"colleague_moved"},
    ),
    "acceptance green and KPI red": ([RED_KPI], FAIL, {"own_worse", "acceptance_at_fault"}),
    "the same, but the KPI was read too early": (
        [RED_KPI, metrics(retention={"read_after": 1.0})],
        NOT_YET,
        {"kpi_too_early"},
    ),
    "what own metrics stand for stands for nothing": (
        [damage("retention", 0.0)],
        FAIL,
        {"proxy_refuted"},
    ),
    "the same, but another own metric may be better": (
        [damage("retention", 0.0), gains(search_success=(0, 0.01))],
        NOT_YET,
        {"proxy_refuted", "no_gain"},
    ),
    "own metrics are not shown to stand for anything": (
        [lambda asked: replace(asked, experiments=())],
        NOT_YET,
        {"proxy_open"},
    ),
    "the component leaks half a margin": ([damage("ad_quality", -0.01)], PASS, set()),
    "the component leaks two margins": ([damage("ad_quality", -0.04)], FAIL, {"leak"}),
    "an own metric does not see its component": (
        [damage("search_success", 0.0), metrics(ndcg={"proxy_for": None})],
        FAIL,
        {"blind"},
    ),
    "a check fails": ([checked(FAIL)], FAIL, {"check"}),
    "a check is undecided": ([checked(NOT_YET)], NOT_YET, {"check"}),
    "releases have eroded the metric": ([eroded], FAIL, {"erosion"}),
}


def changed(*changes: Change) -> ReleaseQuestion:
    return reduce(lambda asked, change: change(asked), changes, SHIPS)


@pytest.mark.parametrize("case", FLIPS)
def test_each_rule_flips_the_decision_and_is_named(case: str) -> None:
    changes, outcome, codes = FLIPS[case]
    found = judge_release(changed(*changes))

    assert (found.outcome, {one.code for one in found.reasons}) == (outcome, codes)
    assert {one.outcome for one in found.reasons} <= {FAIL, NOT_YET}
    assert shown(found)


def shown(found: ReleaseVerdict) -> str:
    return told(block for part in release_report(found).parts for block in part.blocks)


def test_not_yet_names_the_rows_and_their_price() -> None:
    own = {"ndcg": (0.002, 0.003), "search_success": (-0.006, 0.03)}
    found = judge_release(changed(gains(**own, answer_minutes=(0.0, 3.0))))

    assert found.outcome is NOT_YET
    needs = {one.table: one for one in found.needs}
    assert set(needs["online"].metrics) == {"search_success", "answer_minutes"}
    assert needs["offline"].metrics == ("ndcg",)  # the cheapest to be better
    for one in found.needs:
        price = {"online": 0.02, "offline": 0.40}[one.table]
        assert one.cost == pytest.approx(one.num_more * price)
    assert "EUR together" in shown(found)
    assert "more rows in offline decide ndcg" in shown(found)


def test_rows_that_were_asked_for_decide_in_four_of_five_cases() -> None:
    random, decided = np.random.default_rng(5), 0
    need = judge_release(changed(gains(answer_minutes=(0.0, 2.4)))).needs[0]
    error = 2.4 * (1000 / (1000 + need.num_more)) ** 0.5
    for _ in range(200):
        seen = SignedGain(random.normal(0, error), error, 1000 + need.num_more)
        decided += judge_still(seen, 3.0) is Outcome.PASS
    assert decided >= 160


def test_several_own_metrics_need_more_to_be_better_by_one() -> None:
    barely = gains(ndcg=(0.0055, 0.003), search_success=(0, 0.01))  # p 0.034 alone
    alone = metrics(search_success=None, ndcg={"proxy_for": None})

    assert judge_release(changed(barely, alone)).outcome is PASS
    assert judge_release(changed(barely)).outcome is NOT_YET


# -- looks


def test_a_sequence_of_looks_is_wider_than_one_look_and_finds_a_true_gain() -> None:
    random = np.random.default_rng(3)
    is_candidate = (random.random(4000) < 0.5).astype(float)
    scores = random.normal(size=4000)
    still = sequential_gain(scores, is_candidate, share=0.5)
    better = sequential_gain(scores + 0.5 * is_candidate, is_candidate, share=0.5)

    assert still.interval().low < 0 < still.interval().high
    assert better.interval().low > 0.3
    assert still.error > 1.5 * 2 / 4000**0.5


def test_too_few_units_and_sorted_arms_are_refused() -> None:
    with pytest.raises(DataError, match="TooFewUnits: an arm has 99 units"):
        sequential_gain(np.zeros(300), (np.arange(300) < 99).astype(float), share=0.5)
    with pytest.raises(DataError, match="change their arm 1 times"):
        sequential_gain(np.zeros(400), (np.arange(400) < 200).astype(float), share=0.5)


# -- the file, its tables and the command


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(EXAMPLE, tmp_path / "release")
    monkeypatch.chdir(tmp_path / "release")
    return tmp_path / "release"


def edited(folder: Path, old: str, new: str, name: str = "release.toml") -> None:
    text = (folder / name).read_text(encoding="utf-8")
    assert old in text
    (folder / name).write_text(text.replace(old, new), encoding="utf-8")


def test_the_example_ships_and_its_report_says_so_everywhere(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["verify", "release", "release.toml"]
    documents = []
    for _ in range(2):
        assert main([*command, "--json"]) == 0
        documents.append(capsys.readouterr().out)
    assert documents[0] == documents[1]
    data = json.loads(documents[0])["data"]
    assert [one["outcome"] for one in data["ladder"]] == ["PASS", "PASS"]
    assert data["ladder"][1]["lag"] == 7
    assert {one["outcome"] for one in data["isolation"]} == {"PASS"}

    assert main([*command, "--format", "md", "-o", "page.html"]) == 0
    text, page = capsys.readouterr().out, (example / "page.html").read_text(encoding="utf-8")
    for one in (text, page):
        assert "Ship" in one
        assert "Émile" in one or "still" in one
    assert "| ndcg \\(search\\)" in text or "| ndcg (search)" in text
    assert page.count('class="forest"') == 5  # the metrics
    assert page.count(">still ") + page.count(">moves ") == 12


def test_a_release_that_ships_is_recorded_once_and_edits_are_seen(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["verify", "release", "release.toml", "--record"]
    ledger = example / "erosion.jsonl"

    assert main(command) == 0
    edited(example, '"ranker 2026-11"', '"ranker 2026-12"')
    assert main(command) == 0
    lines = ledger.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["release"] for line in lines] == ["ranker 2026-11", "ranker 2026-12"]
    assert main(command) == 2
    assert "is in the ledger" in capsys.readouterr().err

    edited(example, "ranker 2026-11", "ranker 2026-10", "erosion.jsonl")
    assert main(command[:3]) == 1
    assert "does not follow from the line before it" in " ".join(capsys.readouterr().err.split())


def test_what_does_not_ship_is_not_recorded(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edited(example, "retention,0.004", "retention,-0.04", "after_two_weeks.csv")

    assert main(["verify", "release", "release.toml", "--record"]) == 5
    assert not (example / "erosion.jsonl").exists()
    out = " ".join(capsys.readouterr().out.split())
    assert "the acceptance metric ndcg is at fault: it is better, and retention is worse" in out


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("erosion = 0.03", "erosoin = 0.03", "there is no key `metrics[0].erosoin`; the keys here"),
        ("margin = 0.01", "", "NoMargin: `metrics[0]` of `release.toml`: Object missing required"),
        (
            "margin = 0.01",
            "margin = nan",
            "`metrics[0].margin` of `release.toml`: Expected `float` >",
        ),
        ("margin = 0.01", "margin = '1'", "`release.toml`: Expected `float`, got `str`"),
        ('kind = "acceptance"', 'kind = "proxy"', "Invalid enum value 'proxy'"),
        ('team = "search"', 'team = "seerch"', "team: there is no `seerch`; there are `ads`"),
        ('name = "ads"', 'name = "search"', "teams: `search` stands there twice"),
        ('proxy_for = "retention"', 'proxy_for = "ndcg"', "`ndcg` is no rung above"),
        ("noise_correlation = 0.3", "", "missing required field `noise_correlation`"),
        ('unit = "user"\nprice', 'unit = "query"\nprice', "UnitMismatch: `search_success` is per"),
        ('"old"\nid', '"odd"\nid', "`ranker` has no value `odd`; it has old and new (in `offline"),
        ('components = ["bidder"]', "", "degrade `bidder`, which is a component of no team"),
        ('id = "query"', 'order = "query"', "tables[0].order is of an `online` table"),
        (
            'name = "answer_minutes"\nkind = "team"',
            'name = "wait"\nkind = "team"\nteam = "support"\nmargin = 3\n\n[[metrics]]\n'
            'name = "answer_minutes"\nkind = "team"',
            "the metric `wait` has no `table`, and no experiment has it",
        ),
        ("online = true", 'online = true\nid = "ranker"', "have an `ranker` that stands there"),
        ('path = "online.csv"', 'path = "none.csv"', "there is no file `none.csv`"),
        ("[erosion]", "[erosion", "`release.toml` cannot be read"),
    ],
)
def test_a_wrong_file_has_one_clear_message(
    example: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, text: str
) -> None:
    edited(example, old, new)

    assert main(["verify", "release", "release.toml"]) == (
        1 if text.startswith(("UnitMismatch", "have an")) else 2
    )
    error = " ".join(capsys.readouterr().err.split())
    assert text in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("name", "old", "new", "text"),
    [
        ("offline.csv", "q0,old,", "q0,old,nan,", "cannot be read as a table"),
        ("offline.csv", "query,ranker,ndcg", "ndcg,ranker,ndcg", "more than one column `ndcg`"),
        ("offline.csv", "q1,old", "q0,old", "have an id that stands there already (in `offline"),
        ("after_two_weeks.csv", "0.004,0.003", "nan,0.003", "NonFiniteMetric: row 1: "),
        ("experiments.csv", "A/A 2,,0,,,ndcg", "A/A 1,,0,,,ndcg", "2 effects of `ndcg` in `A/A"),
        ("experiments.csv", "ranker: noise 2,noise,2", "ranker: noise 1,noise,2", "more than one"),
        ("experiments.csv", "noise 1,noise,1", "noise 1,noise,", "`ranker` by no `dose`"),
    ],
)
def test_a_wrong_table_has_one_clear_message(
    example: Path, capsys: pytest.CaptureFixture[str], name: str, old: str, new: str, text: str
) -> None:
    edited(example, old, new, name)

    assert main(["verify", "release", "release.toml"]) == 1
    assert text in " ".join(capsys.readouterr().err.split())


def test_a_lost_arm_and_a_verdict_that_failed_stop_a_release(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (example / "online.csv").read_text(encoding="utf-8").splitlines()
    more = [line for line in lines if line.startswith("new")]
    (example / "online.csv").write_text("\n".join([*lines, *more]) + "\n", encoding="utf-8")
    document = {"command": "verify model", "data": {"outcome": "FAIL"}}
    (example / "model.json").write_text(json.dumps(document), encoding="utf-8")
    edited(example, 'currency = "EUR"', 'documents = ["model.json"]')

    assert main(["verify", "release", "release.toml", "--json"]) == 5
    data = json.loads(capsys.readouterr().out)["data"]
    failed = [one["name"] for one in data["checks"] if one["outcome"] == "FAIL"]
    assert failed == ["sample_ratio", "document"]


def test_rows_of_one_query_are_not_independent(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (example / "offline.csv").read_text(encoding="utf-8").splitlines()
    rows = [line.split(",") for line in lines[1:]]
    many = [f"{q}-{i},{q},{arm},{x}" for q, arm, x in rows for i in range(4)]
    widths = []
    for extra in ("", 'group = "topic"\n'):
        text = "\n".join(["query,topic,ranker,ndcg", *many]) if extra else "\n".join(lines)
        (example / "offline.csv").write_text(text + "\n", encoding="utf-8")
        edited(example, 'id = "query"', f'{extra}id = "query"')
        assert main(["verify", "release", "release.toml", "--json"]) == 0
        gain = json.loads(capsys.readouterr().out)["data"]["metrics"][0]["gain"]
        widths.append(gain["high"] - gain["low"])
    assert widths[1] == pytest.approx(widths[0], rel=0.02)


def test_a_metric_of_labels_and_predictions_is_read_as_for_a_comparison(example: Path) -> None:
    rows = [f"q{i},{arm},1,{int(i % 4 != 0 or arm == 'new')}" for i in range(40)
            for arm in ("old", "new")]  # fmt: skip
    text = "\n".join(["query,ranker,label,prediction", *rows])
    (example / "offline.csv").write_text(text + "\n", encoding="utf-8")
    edited(example, 'table = "offline"', 'table = "offline"\ncolumn = "accuracy"')

    assert read_question(Path("release.toml")).measured["ndcg"].mean == pytest.approx(0.25)


def test_a_table_with_a_handful_of_rows_decides_nothing_and_says_what_it_lacks(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"q{i},{arm},0.{i}" for i in range(9) for arm in ("old", "new")]
    (example / "offline.csv").write_text("\n".join(["query,ranker,ndcg", *rows]) + "\n")

    assert main(["verify", "release", "release.toml", "--json"]) == 4
    data = json.loads(capsys.readouterr().out)["data"]
    assert [one["code"] for one in data["reasons"]] == ["not_measured"]
    assert data["needs"][0]["num_more"] == 42


def test_the_pages_name_what_is_wrong() -> None:
    found = judge_release(changed(damage("ad_quality", -0.04), damage("search_success", 0.0)))
    report = release_report(found)

    for text in (shown(found), paint_markdown(report), paint_page(report)):
        assert all(word in text for word in ("LEAKS", "BLIND", "Do not ship"))
