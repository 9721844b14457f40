"""`scripts/check --gpu` says what it would run, what became of each step, and why."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("_gpu_check", ROOT / "scripts" / "_gpu_check.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["_gpu_check"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(check: ModuleType, folder: Path, code: str, *, limit_s: float = 20, left_s: float = 99):
    step = check.Step(name="a step", command=(sys.executable, "-c", code), limit_s=limit_s)
    until_s = time.monotonic() + left_s
    return check.run(step, dict(os.environ), folder / "log.txt", until_s=until_s)


def test_a_step_that_ends_well_is_ok_and_its_words_are_in_the_log(check, tmp_path: Path) -> None:
    ended = run(check, tmp_path, "print('it ran')")

    assert (ended.outcome, ended.exit_code, ended.last_lines) == ("ok", 0, ("it ran",))
    assert "it ran" in (tmp_path / "log.txt").read_text()


def test_a_step_that_fails_shows_its_last_words(check, tmp_path: Path) -> None:
    ended = run(check, tmp_path, "raise SystemExit('no such device')")

    assert (ended.outcome, ended.exit_code, ended.last_lines) == ("failed", 1, ("no such device",))


def test_a_step_that_takes_too_long_is_killed(check, tmp_path: Path) -> None:
    ended = run(check, tmp_path, "import time; time.sleep(60)", limit_s=0.3)

    assert (ended.outcome, ended.exit_code) == ("out of time", None)


def test_a_step_for_which_no_time_is_left_is_not_begun(check, tmp_path: Path) -> None:
    ended = run(check, tmp_path, "print('it ran')", left_s=1)

    assert ended.outcome == "left out"
    assert not (tmp_path / "log.txt").exists()


def test_the_example_is_put_on_the_device(check, tmp_path: Path) -> None:
    check.make_demo(tmp_path)

    text = (tmp_path / "train.py").read_text()
    compile(text, "train.py", "exec")
    assert text.count("to(DEVICE)") == 4
    assert text.count("DEVICE = ") == 1


def test_without_a_device_it_says_what_it_would_run(
    check, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = check.make_steps("python", make(tmp_path / "work"), tmp_path, is_dry=False)
    ended = [check.Ended(name=s.name, command=s.command, outcome="not run") for s in steps]

    code = check.finish(tmp_path, {"devices": []}, ended, time.monotonic(), why="no device")

    said = capsys.readouterr().err
    assert code == 3
    assert "nothing was run: no device" in said
    for words in ("-m gpu", "train.py", "machine", "ailments.py"):
        assert words in said
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert {step["outcome"] for step in summary["steps"]} == {"not run"}


def test_all_steps_fit_into_nine_minutes_if_each_takes_half_of_its_limit(
    check, tmp_path: Path
) -> None:
    steps = check.make_steps("python", make(tmp_path / "work"), tmp_path, is_dry=False)

    assert sum(step.limit_s for step in steps) / 2 < check.BUDGET_S < 9 * 60


def make(folder: Path) -> Path:
    folder.mkdir()
    return folder
