"""Whole studies of a real tiny script, with levers that do what the tests want."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

import pytest

from end_to_end.acting import BURNING
from end_to_end.harness import EVERYWHERE, needs_linux, needs_torch
from end_to_end.kept_study import study_options
from run_folders import ARCHIVE_OF_STUDY, unpack
from steptime.core.codec import to_json
from steptime.launch.user_command import user_environment
from steptime.tune.run_study import run_study
from steptime.tune.study.study_folder import open_study
from steptime.tune.study.study_key import make_key
from steptime.tune.trials.real_bench import RealBench
from steptime.tune.values.study_progress import StudyProgress
from steptime.tune.values.study_values import Study, StudyOutcome, TrialEnd

pytestmark = [needs_torch, needs_linux]


def ends(found: Study) -> dict[str, TrialEnd]:
    """How the live trials of single levers ended."""
    return {t.state[0].name: t.end for t in found.trials if t.kind == "live" and len(t.state) == 1}


@pytest.mark.slow("a whole study: a baseline, live trials and the runs that prove it")
@pytest.mark.serial
def test_the_lever_that_helps_is_found_among_those_that_do_harm(tmp_path: Path) -> None:
    told: list[StudyProgress] = []

    found = run_study(study_options(tmp_path), progress=told.append)

    assert found.outcome is StudyOutcome.FASTER
    assert found.recipe[0].name == "quick"
    # What does nothing may stay beside it only where it is named as not measured by itself.
    said = [c.facts["state"] for c in found.choices if c.code == "not_told_apart" and c.facts]
    assert [one.name for one in found.recipe[1:]] in ([], *([one.split("(")[0]] for one in said))
    assert found.speedup is not None
    assert found.speedup.low > 1.5
    assert found.quality is not None
    assert found.quality.level == "L0"
    assert found.sites is not None
    assert {site.what for site in found.sites.sites} == {"optimizer", "model_call"}
    assert ends(found)["crash"] is TrialEnd.FAILED
    assert ends(found)["not_finite"] is TrialEnd.DIVERGED
    assert told[0].phase == "probe"
    assert told[-1].phase == "done"
    (folder,) = (tmp_path / ".steptime" / "studies").glob("2*")
    assert (folder / "tuned.toml").is_file()
    assert json.loads((folder / "study.json").read_text())["outcome"] == "faster"


def test_over_the_answers_of_a_study_the_search_goes_the_same_way_to_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers are those of a live study: of the test above, on a quiet machine."""
    options = study_options(tmp_path)
    key = make_key(options, user_environment(), cwd=Path.cwd(), stdin=None)
    folder = open_study(tmp_path, key, budget_s=options.budget_s)
    kept = unpack(ARCHIVE_OF_STUDY, folder.answers)
    before = json.loads(kept.pop("study.json"))
    for question in ("observe", "compare_live", "compare_processes", "judge"):
        monkeypatch.setattr(RealBench, question, no_answer_is_kept)

    found = run_study(options, progress=lambda told: None)

    after = to_json(found)
    for name in ("outcome", "recipe", "speedup", "noise_floor", "quality", "choices", "not_tried"):
        assert after[name] == before[name], name
    assert len(found.trials) == len(before["trials"])
    assert (folder.folder / "tuned.toml").is_file()
    assert sorted(path.name for path in folder.answers.iterdir()) == sorted(kept)


def no_answer_is_kept(bench: RealBench, *question: object) -> NoReturn:
    raise AssertionError(
        f"the search asks what it did not ask when the answers were kept: {question}. "
        "If it should, make them again: python scripts/gen_run_folders.py study"
    )


def start_tune(folder: Path, *words: str, budget: str = "120s") -> subprocess.Popen[str]:
    """`steptime tune` of the burning script, in a process of its own."""
    options = ("--budget", budget, "--unsafe-trials", "--levers", EVERYWHERE)
    command = ("-m", "steptime", "tune", *options, *words, "--", sys.executable, str(BURNING))
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def answers(folder: Path) -> list[Path]:
    return sorted((folder / ".steptime" / "studies").glob("2*/answers/*.json"))


def wait_for_answers(folder: Path, num: int, *, limit_s: float = 100.0) -> None:
    until = time.monotonic() + limit_s
    while len(answers(folder)) < num:
        assert time.monotonic() < until, "no answer came"
        time.sleep(0.1)


def burning_processes() -> list[str]:
    """Processes that still run the script."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if str(BURNING).encode() in words and b"tune" not in words:
            found.append(path.parent.name)
    return found


@pytest.mark.slow("a study that is killed, and the rest of it in another process")
@pytest.mark.serial
def test_a_study_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    first = start_tune(tmp_path)
    wait_for_answers(tmp_path, 2)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    kept = {path.name: path.read_bytes() for path in answers(tmp_path)}

    second = start_tune(tmp_path)
    _, err = second.communicate(timeout=240)

    assert second.returncode in (0, 4), err
    assert len({path.parent for path in answers(tmp_path)}) == 1
    assert {path.name: path.read_bytes() for path in answers(tmp_path)}.items() >= kept.items()
    assert len(answers(tmp_path)) > len(kept)
    assert burning_processes() == []


@pytest.mark.slow("a study up to its first answer")
@pytest.mark.serial
@pytest.mark.core
def test_an_interrupt_ends_a_study_within_five_seconds(tmp_path: Path) -> None:
    process = start_tune(tmp_path)
    wait_for_answers(tmp_path, 1)

    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)

    assert time.monotonic() - began < 5.0
    assert process.returncode == 130
    assert "interrupted" in out + err
    assert burning_processes() == []
    (path,) = (tmp_path / ".steptime" / "studies").glob("2*/study.json")
    assert json.loads(path.read_text())["is_interrupted"] is True
