"""`steptime patch` as a command: what goes where, its exit codes, and what the check says."""

from __future__ import annotations

import builtins
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("libcst")

from documents import check_fits
from patch_cases import (
    CHANNELS_LAST,
    FUSED,
    LEVERS,
    ONE_THREAD,
    SCRIPT,
    WORKERS,
    patch_of,
    recipe_of,
    sites_of,
)
from steptime.app.study import patch as app
from steptime.cli import main
from steptime.cli.study.patch import exit_code_of
from steptime.core.interval import Interval
from steptime.errors import ContainmentError
from steptime.isolate.tiers import Containment, Tier
from steptime.levers.base import Preserves
from steptime.patch.check_patch import (
    CheckSubject,
    check_patch,
    choose_speed,
    claim_of_recipe,
    goes_on,
    judge_speed,
    speed_of,
)
from steptime.patch.values import Handover, PatchCheck
from steptime.report.text.handover_text import check_lines
from steptime.tune.recipe.recipe_file import write_recipe
from steptime.tune.values.study_values import Applied
from steptime.verify.values import Outcome, QualityCheck, Verdict

Capture = pytest.CaptureFixture[str]
TRIMMED = Applied(name="trim_padding", settings={"multiple_of": 1})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    write_recipe(tmp_path / "tuned.toml", recipe_of(SCRIPT, FUSED, ONE_THREAD, TRIMMED))
    return tmp_path


def test_the_diff_goes_to_stdout_and_the_words_to_stderr(capsys: Capture) -> None:
    assert main.main(["patch", "tuned.toml"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("--- a/train.py\n+++ b/train.py\n@@ ")
    assert "fused_optimizer: train.py:8\n" in err
    assert "num_threads: in the launch line\n" in err
    assert "trim_padding: by hand. No call was seen that makes a loader" in err
    assert "  OMP_NUM_THREADS=1 python train.py\n" in err


def test_with_a_file_the_words_are_the_result(folder: Path, capsys: Capture) -> None:
    assert main.main(["patch", "tuned.toml", "-o", "x.patch"]) == 0
    out, err = capsys.readouterr()
    assert out.endswith("Apply it: git apply x.patch\n")
    assert err == ""
    assert (folder / "x.patch").read_bytes().startswith(b"--- a/train.py\n")
    assert (folder / "train.py").read_text() == SCRIPT


def test_the_document_holds_all_of_it(capsys: Capture) -> None:
    assert main.main(["patch", "tuned.toml", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    check_fits(document, "patch")
    assert document["data"]["variables"] == {"OMP_NUM_THREADS": "1"}
    assert [one["lever"] for one in document["data"]["by_hand"]] == ["trim_padding"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["missing.toml"], "there is no recipe missing.toml"),
        (["tuned.toml", "-o", "tuned.toml"], "--output: `tuned.toml` exists and is no report"),
        (["tuned.toml", "-o", "none/x.patch"], "--output: there is no folder `none`"),
        (["tuned.toml", "--check", "--budget", "soon"], "--budget"),
    ],
)
def test_bad_input_is_one_message(words: list[str], says: str, capsys: Capture) -> None:
    assert main.main(["patch", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {says}") or says in err


def test_without_libcst_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    import sys

    for name in [one for one in sys.modules if one.startswith(("libcst", "steptime.patch."))]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name.split(".")[0] == "libcst":
            raise ImportError("No module named 'libcst'")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    assert main.main(["patch", "tuned.toml"]) == 2
    assert "pip install 'steptime[patch]'" in capsys.readouterr().err


# -- the check

PASSED = Verdict(
    outcome=Outcome.PASS,
    level="L0",
    checks=(QualityCheck(name="replay", outcome=Outcome.PASS, n=60),),
)


def found(outcome: Outcome, **changes: Any) -> PatchCheck:
    return PatchCheck(outcome=outcome, losses=PASSED, is_exact=True, **changes)


@pytest.mark.parametrize(
    ("outcome", "code"), [(Outcome.PASS, 0), (Outcome.FAIL, 5), (Outcome.INCONCLUSIVE, 4)]
)
def test_the_check_decides_the_exit_code(
    outcome: Outcome, code: int, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    speed = Interval(estimate=1.01, low=0.99, high=1.03, n=6)
    monkeypatch.setattr(app, "check", lambda *_, **__: found(outcome, speed=speed, reason="So."))
    assert main.main(["patch", "tuned.toml", "-o", "x.patch", "--check"]) == code
    out = capsys.readouterr().out
    assert "Losses: equal bit for bit to the recipe's over 60 updates.\n" in out
    assert "Speed: 1.01x the recipe's (0.99 to 1.03, 6 pairs, wall time).\n" in out
    assert exit_code_of(None) == 0


def test_a_check_that_failed_is_in_the_document(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(app, "check", lambda *_, **__: found(Outcome.FAIL, reason="It is slower."))
    assert main.main(["patch", "tuned.toml", "--check", "--json"]) == 5
    document = json.loads(capsys.readouterr().out)
    check_fits(document, "patch")
    message = document["errors"][0]["message"]
    assert message.startswith("It is slower. trim_padding is left by hand")


def test_losses_that_differ_are_not_called_equal(folder: Path) -> None:
    other = Verdict(outcome=Outcome.FAIL, level="L0", checks=())
    check = PatchCheck(outcome=Outcome.FAIL, losses=other, is_exact=True, reason="Other losses.")
    assert check_lines(check, patch_of(folder, recipe_of(SCRIPT, FUSED))) == [
        "Other losses.",
        "Not passed: the patched script does not do what the recipe did.",
    ]


def test_a_check_says_what_was_left_by_hand(folder: Path) -> None:
    check = found(Outcome.FAIL, reason="It is slower.")
    assert check_lines(check, patch_of(folder, recipe_of(SCRIPT, FUSED, TRIMMED)))[1:] == [
        "It is slower.",
        "trim_padding is left by hand as said above: the recipe ran with it, the patched script "
        "without it.",
        "Not passed: the patched script does not do what the recipe did.",
    ]
    (one,) = (site for site in sites_of(SCRIPT) if site.what == "optimizer")
    elsewhere = replace(one, place=replace(one.place, end_line=99))
    half = patch_of(folder, recipe_of(SCRIPT, FUSED, sites=(one, elsewhere)))
    assert check_lines(check, half)[2].startswith("fused_optimizer is left by hand in places: ")


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (0.99, 1.02, Outcome.PASS),
        (1.05, 1.09, Outcome.PASS),
        (1.05, 1.60, Outcome.PASS),
        (0.90, 0.95, Outcome.FAIL),
        (0.80, 1.10, Outcome.INCONCLUSIVE),
    ],
)
def test_speed_is_kept_within_noise(low: float, high: float, outcome: Outcome) -> None:
    speed = Interval(estimate=(low + high) / 2, low=low, high=high, n=6)
    assert judge_speed(speed)[0] is outcome
    assert judge_speed(None)[0] is Outcome.INCONCLUSIVE
    assert speed_of(()) is None


@pytest.mark.parametrize(
    ("share", "low", "high", "has_room", "more"),
    [
        (1.0, 0.99, 1.02, True, False),  # as fast
        (1.0, 0.90, 0.95, True, False),  # slower
        (1.0, 0.80, 1.10, True, True),
        (1.0, 0.80, 1.10, False, False),
        (1.5, 0.99, 1.02, True, True),  # not looked at between the looks
        (2.0, 0.99, 1.02, True, False),
        (4.0, 0.80, 1.10, True, False),  # as many as there ever are
    ],
)
def test_an_unclear_speed_takes_more_pairs_while_there_is_time(
    share: float, low: float, high: float, *, has_room: bool, more: bool
) -> None:
    speed = Interval(estimate=(low + high) / 2, low=low, high=high, n=6)
    assert goes_on(share, speed, lambda: has_room) is more


@pytest.mark.parametrize(
    ("low", "high", "by_cpu", "is_on_cpu", "judge"),
    [
        (0.95, 1.05, False, True, "wall"),
        (1.05, 1.60, False, True, "wall"),  # wide, and as fast at least
        (0.70, 1.50, False, True, "cpu"),  # others' work: both sides have the same levers
        (0.70, 1.50, False, False, "wall"),  # what a device computes takes no CPU time
        (0.60, 0.90, False, True, "wall"),  # slower for certain, whatever the CPU time is
        (0.95, 1.05, True, True, "cpu"),
    ],
)
def test_cpu_time_tells_what_the_wall_time_does_not(
    low: float, high: float, *, by_cpu: bool, is_on_cpu: bool, judge: str
) -> None:
    wall = Interval(estimate=(low + high) / 2, low=low, high=high, n=6)
    cpu = Interval(estimate=1.0, low=0.99, high=1.01, n=6)
    found = choose_speed(wall, cpu, by_cpu=by_cpu, is_on_cpu=is_on_cpu)
    assert found == ((cpu, "cpu") if judge == "cpu" else (wall, "wall"))
    assert choose_speed(wall, None, by_cpu=by_cpu, is_on_cpu=is_on_cpu) == (wall, "wall")


def test_a_recipe_is_as_weak_as_its_weakest_lever() -> None:
    def claim(*state: Applied) -> Preserves:
        return claim_of_recipe(recipe_of(SCRIPT, *state), LEVERS).preserves

    assert claim() is Preserves.EXACT
    assert claim(FUSED, CHANNELS_LAST) is Preserves.NUMERIC
    assert claim(WORKERS, FUSED) is Preserves.STATISTICAL


def test_nothing_is_tried_where_files_could_be_changed(tmp_path: Path) -> None:
    subject = CheckSubject(
        recipe=recipe_of(SCRIPT, FUSED),
        levers=LEVERS,
        handover=Handover(
            diff=b"", files={}, variables={}, launch_line=None, placed=(), by_hand=()
        ),
        cwd=tmp_path,
        environment={},
        libraries={},
        scratch=tmp_path,
    )
    said: Sequence[str] = []
    with pytest.raises(ContainmentError, match="cannot be tried here without a change"):
        check_patch(subject, Containment(tier=Tier.GUARDED), tell=list(said).append)


def test_there_must_be_something_to_check(folder: Path, capsys: Capture) -> None:
    write_recipe(folder / "tuned.toml", recipe_of(SCRIPT, TRIMMED))
    assert main.main(["patch", "tuned.toml", "--check"]) == 2
    assert "there is nothing to check" in capsys.readouterr().err
