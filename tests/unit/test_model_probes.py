"""A predictor is probed row by row: planted truths, and the guards against empty passes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("scipy", reason="the extra steptime[verify-model] is not installed")

from steptime.app.verify.feature_tables import read_inputs  # noqa: E402
from steptime.app.verify.predict_process import ask_function, ask_process  # noqa: E402
from steptime.errors import DataError, ScriptFailedError, SteptimeError, UsageError  # noqa: E402
from steptime.verify.model.changes.column_changes import Dosed, permute  # noqa: E402
from steptime.verify.model.changes.picture_changes import OF_PICTURES  # noqa: E402
from steptime.verify.model.probe_judging import rows_to_decide  # noqa: E402
from steptime.verify.model.probes import ProbeInputs, run_probes  # noqa: E402
from steptime.verify.values import Outcome  # noqa: E402
from steptime.verify.values.probe_asked import probe_asked  # noqa: E402

UP = "DIR:column=w,change=add,size=1,expect=up"
SAME = "INV:column=z,change=permute"


def make_inputs(num: int = 300, **more: Any) -> ProbeInputs:
    random = np.random.default_rng(0)
    columns = {"z": random.normal(size=num), "w": random.normal(size=num), **more}
    return ProbeInputs(columns=columns, rows=[f"r{i}" for i in range(num)])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def probed(predict: Callable[..., Any], *probes: str, inputs: ProbeInputs | None = None, **more):
    inputs = inputs or make_inputs()
    asked = [probe_asked(text) for text in probes]
    asks = [partial(ask_function, one, inputs) for one in (predict, *more.values())]
    return run_probes(inputs, asked, *asks)


def test_a_model_that_does_not_read_a_column_is_invariant_to_it() -> None:
    same, up = probed(lambda c: sigmoid(c["w"]), SAME, UP).results

    assert (same.num_violations, same.num_rows, same.outcome) == (0, 300, Outcome.PASS)
    assert same.rate is not None
    assert same.rate.high == pytest.approx(0.0099, abs=5e-5)
    assert up.outcome is Outcome.PASS


def test_moves_up_and_down_that_cancel_fail_for_each_row_is_judged() -> None:
    def jumpy(c):
        known = make_inputs().columns["z"]
        sign = np.where(np.arange(300) % 2, 0.3, -0.3)
        return 0.5 + np.where(c["z"] == known, 0.0, sign) + 1e-6 * c["w"]

    same = probed(jumpy, SAME, UP).results[0]

    assert (same.num_violations, same.outcome) == (300, Outcome.FAIL)
    assert len(same.worst) == 10


def test_a_constant_model_passes_no_invariance() -> None:
    found = probed(lambda c: np.full(300, 0.7), SAME, UP)

    assert found.is_constant
    assert {(one.outcome, one.reason) for one in found.results} == {
        (Outcome.INCONCLUSIVE, "constant_predictor"),
        (Outcome.INCONCLUSIVE, "nothing_moved"),
    }


def test_an_invariance_counts_only_beside_a_direction() -> None:
    (same,) = probed(lambda c: sigmoid(c["w"]), SAME).results

    assert (same.outcome, same.reason) == (Outcome.INCONCLUSIVE, "no_direction_probe")


@pytest.mark.parametrize(
    ("probe", "text"),
    [
        ("INV:column=z,change=noise,size=0", "changed 0 of the 300 rows"),
        ("INV:column=t,change=case", "changed 150 of the 300 rows"),
        ("INV:column=z,change=add,size=0", "changed 0 of the 300 rows"),
    ],
)
def test_a_probe_that_changes_nothing_is_refused_by_name(probe: str, text: str) -> None:
    inputs = make_inputs(t=np.array(["12", "ab"] * 150))
    with pytest.raises(UsageError, match=f"ProbeDidNothing: .* {text}"):
        probed(lambda c: c["w"], probe, UP, inputs=inputs)


def test_rows_without_a_value_are_not_claimed() -> None:
    inputs = make_inputs(n=np.where(np.arange(300) % 3, np.arange(300), np.nan))
    (same, _) = probed(
        lambda c: sigmoid(c["w"]), "INV:column=n,change=noise", UP, inputs=inputs
    ).results

    assert (same.num_rows, same.reason) == (200, "too_few_rows")


def test_one_wrong_leaf_fails_the_direction_and_its_rows_are_the_worst() -> None:
    inputs = make_inputs(1000)
    in_leaf = set(np.argsort(inputs.columns["z"])[:30].tolist())
    border = np.sort(inputs.columns["z"])[30]

    def tree(c):
        up = np.floor(4 * c["w"]) / 40
        return 0.5 + np.where(c["z"] < border, -up, up)

    (up,) = probed(tree, UP, inputs=inputs).results

    assert (up.num_violations, up.outcome) == (30, Outcome.FAIL)
    assert {int(row.row[1:]) for row in up.worst} <= in_leaf


def test_too_few_rows_say_how_many_would_decide() -> None:
    inputs = make_inputs(100)
    same = probed(lambda c: sigmoid(c["w"]), SAME, UP, inputs=inputs).results[0]

    assert (same.outcome, same.reason) == (Outcome.INCONCLUSIVE, "too_few_rows")
    assert same.num_needed == 299  # log(0.05) / log(0.99)
    assert rows_to_decide(0.01, 0.01, 100) is None


def test_the_rate_of_a_predictor_with_chance_in_it_is_subtracted() -> None:
    inputs = make_inputs(20_000)

    def predictor(rate: float):
        random = np.random.default_rng(1)

        def predict(c):
            hit = random.random(len(c["w"])) < rate
            return np.where(hit, 1 - sigmoid(c["w"]), sigmoid(c["w"]))

        return predict

    found = probed(predictor(0.02), "INV:column=z,change=permute,allowed=0.02", UP, inputs=inputs)
    same = found.results[0]

    assert found.is_random
    assert same.own_rate == pytest.approx(0.036, abs=0.006)
    assert same.num_violations > 0.03 * 20_000  # which alone would fail
    assert same.outcome is Outcome.PASS


def test_what_is_retained_at_each_dose_is_judged_beside_a_reference() -> None:
    random = np.random.default_rng(3)
    w = random.normal(size=4000)
    labels = (w > 0).astype(int)
    inputs = ProbeInputs(columns={"w": w, "v": w + 0.01}, labels=labels)
    probe = "perturbation:column=w,change=noise,doses=0.1/0.5/2,margin=0.02"

    def fragile(c):
        return (c["w"] > 0).astype(int)

    def robust(c):
        return (c["v"] > 0.01).astype(int)

    (worse,) = probed(fragile, probe, inputs=inputs, reference=robust).results
    (better,) = probed(robust, probe, inputs=inputs, reference=fragile).results
    (alone,) = probed(fragile, probe, inputs=inputs).results

    assert [dose.retained for dose in worse.doses] == sorted(
        (dose.retained for dose in worse.doses), reverse=True
    )
    # A normal value and noise of s standard deviations: its sign stays with 1 - arctan(s) / pi.
    assert worse.doses[1].retained == pytest.approx(1 - np.arctan(0.5) / np.pi, abs=0.02)
    assert (worse.outcome, better.outcome, alone.outcome) == (Outcome.FAIL, Outcome.PASS, None)


def test_a_score_that_leaves_its_range_is_still_judged_as_a_decision() -> None:
    w = np.linspace(0, 1, 1000)
    inputs = ProbeInputs(columns={"w": w}, labels=(w > 0.5).astype(int))
    (one,) = probed(lambda c: c["w"], "perturbation:column=w,change=noise", inputs=inputs).results

    assert one.metric == "right"
    assert 0.5 < one.doses[-1].retained < one.doses[0].retained <= 1
    with pytest.raises(UsageError, match="needs the column `label`"):
        probed(lambda c: 9 * c["w"], "perturbation:column=w,change=noise")


def test_a_fresh_augmentation_is_not_one_of_the_training() -> None:
    random = np.random.default_rng(0)
    x = random.integers(0, 256, size=(400, 12, 10, 3)).astype(np.uint8)
    inputs = ProbeInputs(columns={"x": x}, is_array=True)
    probe = "fresh:trained=flip/rotate/reencode/brightness"
    (one,) = probed(lambda x: x[:, 0, 0, 0].astype(int), probe, inputs=inputs).results

    assert (one.change, one.outcome) == ("shift", Outcome.PASS)
    with pytest.raises(UsageError, match="the training used every augmentation"):
        probed(lambda x: x[:, 0, 0, 0], probe + "/shift", inputs=inputs)


@pytest.mark.parametrize("shape", [(6, 12, 10), (6, 12, 10, 3), (6, 3, 12, 10)])
@pytest.mark.parametrize("name", sorted(OF_PICTURES))
def test_each_change_of_pictures_keeps_shape_type_and_range(name: str, shape) -> None:
    x = np.random.default_rng(0).integers(10, 200, size=shape).astype(np.uint8)
    how = Dosed(dose=0.1, value=None, random=np.random.default_rng(1))
    changed = OF_PICTURES[name](x, how)

    assert (changed.shape, changed.dtype) == (x.shape, x.dtype)
    assert (changed != x).reshape(6, -1).any(axis=1).all()
    if name not in ("corrupt", "noise"):
        assert np.abs(changed.astype(float).mean() - x.mean()) < 25


@pytest.mark.parametrize("counts", [(50, 50), (30, 70), (1,) * 100, (10, 20, 70)])
def test_permuting_gives_each_row_another_value_where_one_is_left(counts) -> None:
    values = np.repeat(np.arange(len(counts)), counts)
    how = Dosed(dose=1.0, value=None, random=np.random.default_rng(5))
    changed = permute(values, how)

    assert sorted(changed) == sorted(values)
    assert (changed != values).sum() >= min(100, 2 * (100 - max(counts)))


def test_compliance_asks_a_function_of_rows(tmp_path: Path) -> None:
    rules = tmp_path / "compliance_rules.py"
    rules.write_text("def positive(rows, predictions):\n    return predictions > 0\n")
    (one,) = probed(lambda c: c["w"], f"MFT:check={rules}:positive").results

    assert one.num_violations == int((make_inputs().columns["w"] <= 0).sum())
    assert one.outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"kind": "magic"}, "there is no probe `magic`"),
        ({"kind": "invariance"}, "needs the key `change`"),
        ({"kind": "direction", "change": "add", "column": "w"}, "needs the key `expect`"),
        (
            {"kind": "invariance", "change": "add", "colour": "w"},
            "a probe of kind invariance has no key `colour`",
        ),
        ({"kind": "perturbation", "change": "noise", "doses": [0.1, 0.2]}, "length >= 3"),
        ({"kind": "MFT", "check": "a.py:f", "by": 1}, "of kind compliance has no key `by`"),
        ({"kind": "INV", "change": "noise", "allowed": 1.5}, "at `.*allowed`"),
        ({"kind": "INV", "change": "noise", "size": "much"}, "cannot be read"),
    ],
)
def test_a_probe_that_says_too_little_is_refused(given: dict[str, object], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        probe_asked(given)


@pytest.mark.parametrize(
    ("probe", "text"),
    [
        ("INV:column=n,change=permute", "the inputs have no column `n`; they have `z`, `w`"),
        ("INV:column=z,change=typo", "there is no change `typo` of float64"),
        ("INV:change=permute", "needs the key `column`"),
        ("INV:column=z,change=permute", "needs the key `tolerance`"),
    ],
)
def test_a_probe_that_does_not_suit_the_inputs_is_refused(probe: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        probed(lambda c: 100 * c["w"], probe, UP)


def test_predictions_that_are_none_are_refused_by_name() -> None:
    with pytest.raises(DataError, match=r"NonFiniteMetric: .* 300 of 300 rows"):
        probed(lambda c: c["w"] * np.nan, SAME)
    with pytest.raises(DataError, match="the predictor returned complex128"):
        probed(lambda c: c["w"] + 0j, SAME)
    with pytest.raises(DataError, match=r"float64 of shape \(2,\); expected .* 300 rows"):
        probed(lambda c: c["w"][:2], SAME)


# -- in a process of its own

MODEL = """
import helper
import numpy as np

def predict(rows):
    rows["w"] += 0  # its own copy
    return helper.sigmoid(rows["w"])

def raised(rows):
    rows["w"] = rows["w"] + 1
    return rows

def finite(rows, predictions):
    return np.isfinite(predictions)

def broken(rows):
    print("loading")
    raise ValueError("no weights here")

def slow(rows):
    while True:
        pass

def killed(rows):
    import os
    os.kill(os.getpid(), 9)

def left(rows):
    import os
    os._exit(0)

def of_array(x):
    return [str(v) for v in x[:, 0] > 0]
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text(
        "import numpy as np\nsigmoid = lambda x: 1 / (1 + np.exp(-x))\n"
    )
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


def test_a_predictor_runs_in_its_own_process(model: Path) -> None:
    inputs = make_inputs(名=np.array(["é", "日本"] * 150), file=np.zeros(300))
    probes = [
        probe_asked(text)
        for text in (
            SAME,
            UP,
            f"DIR:change={model}:raised,expect=up",
            f"MFT:check={model}:finite",
            "INV:column=名,change=permute",
        )
    ]
    found = run_probes(inputs, probes, partial(ask_process, f"{model}:predict", inputs))

    assert {one.outcome for one in found.results} == {Outcome.PASS}
    assert not found.is_random


@pytest.mark.parametrize(
    ("name", "limit_s", "text"),
    [
        ("broken", 60.0, r"(?s)ended with exit code 1\..*ValueError: no weights here"),
        ("slow", 0.5, r"did not answer within 0.5 s \(--timeout\)"),
        ("killed", 60.0, "was ended by signal 9"),
        ("left", 60.0, "ended before it had answered"),
        ("missing", 60.0, "has no function `missing`"),
    ],
)
def test_a_predictor_that_fails_is_one_message(
    model: Path, name: str, limit_s: float, text: str
) -> None:
    inputs = make_inputs()
    ask = partial(ask_process, f"{model}:{name}", inputs, limit_s=limit_s)
    with pytest.raises(ScriptFailedError, match=text):
        run_probes(inputs, [probe_asked(UP)], ask)


def test_arrays_are_read_with_labels_and_ids(tmp_path: Path, model: Path) -> None:
    x = np.random.default_rng(0).normal(size=(400, 3))
    np.savez(tmp_path / "rows.npz", x=x, y=(x[:, 0] > 0).astype(str), id=np.arange(400) + 7)
    inputs = read_inputs(tmp_path / "rows.npz", id_column="id")
    probes = [probe_asked("perturbation:column=0,change=permute")]
    (one,) = run_probes(inputs, probes, partial(ask_process, f"{model}:of_array", inputs)).results

    assert inputs.rows[:2] == ("7", "8")
    assert one.metric == "right"
    assert one.doses[0].retained > one.doses[-1].retained
    for name, text in (("no.npz", "there is no file"), ("rows.npy", "cannot be read as arrays")):
        (tmp_path / "rows.npy").write_text("no array")
        with pytest.raises(SteptimeError, match=text):
            read_inputs(tmp_path / name, id_column="id")
