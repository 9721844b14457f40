"""`steptime compare`: which runs are meant, what it says, and the codes it ends with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from compare_cases import run_id_of, store_run, with_machine
from steptime.cli.main import main
from steptime.cli.option_values import parse_percent
from steptime.core.devices.given_price import parse_price
from steptime.core.process_end import ProcessEnd, RunState
from steptime.errors import UsageError

Capture = pytest.CaptureFixture[str]

QUIET = (0.100, 0.101, 0.099)
SLOWER = (0.120, 0.121, 0.119)
LITTLE = (0.103, 0.104, 0.102)


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def store(a: Sequence[float], b: Sequence[float], **of_b: Any) -> list[str]:
    """Runs in the store of this folder; the words that name them."""
    for i, step_s in enumerate(a):
        store_run(Path(), step_s, number=2 * i)
    for i, step_s in enumerate(b):
        store_run(Path(), step_s, number=2 * i + 1, **of_b)
    of_a = [run_id_of(2 * i) for i in range(len(a))]
    return ["compare", *of_a, "--", *(run_id_of(2 * i + 1) for i in range(len(b)))]


def document_of(words: list[str], capsys: Capture) -> dict[str, Any]:
    main([*words, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


# -- the answer


def test_the_report_says_what_was_changed_and_what_it_did(capsys: Capture) -> None:
    record = {"argv": ("python", "train.py", "--lr", "0.2"), "environment": {}}
    words = store(QUIET, SLOWER, record=record)

    assert main([*words, "--hourly-price", "36/h"]) == 0

    said = " ".join(capsys.readouterr().out.split())
    assert "B is slower: a step takes 100 ms in A and 120 ms in B, +20.0 %" in said
    assert "argument --lr: 0.1 -> 0.2" in said
    assert "variable OMP_NUM_THREADS: 4 -> not set" in said
    assert "a run of 500 steps takes 55.0 s in A and" in said
    assert "0.55 in A and 0.65 in B (+0.1," in said
    assert "backward" in said
    assert f"steptime show {run_id_of(5)}" in said


def test_cpu_time_is_compared_where_it_is_asked_for(capsys: Capture) -> None:
    for number in range(8):  # others double the wall time of every third run
        cpu_s = 0.040 + 0.0001 * (number // 2) + 0.004 * (number % 2)
        store_run(Path(), 0.2 if number % 3 else 0.1, number=number, cpu_s=cpu_s)
    runs = [*map(run_id_of, range(0, 8, 2)), "--", *map(run_id_of, range(1, 8, 2))]

    assert main(["compare", *runs, "--pairs", "--fail-if-slower", "5%"]) == 4
    capsys.readouterr()
    assert main(["compare", *runs, "--pairs", "--cpu", "--fail-if-slower", "5%"]) == 5
    said = " ".join(capsys.readouterr().out.split())
    assert "a step takes 40.1 ms in A and 44.1 ms in B (CPU time), +10.0 %" in said
    assert "CPU time per step" in said
    assert "finish" not in said


def test_the_document_has_it_all(capsys: Capture) -> None:
    document = document_of(store(QUIET, SLOWER), capsys)

    data = document["data"]
    assert (document["command"], document["status"], document["exit_code"]) == ("compare", "ok", 0)
    found = data["comparison"]
    (backward,) = (phase for phase in found["phases"] if phase["name"] == "backward")
    assert found["outcome"] == "slower"
    assert found["step"]["change"]["value"] == pytest.approx(0.2, abs=1e-3)
    assert backward["difference_s"]["low"] > 0
    assert [run["run_id"] for run in found["a"]] == [run_id_of(i) for i in (0, 2, 4)]
    assert (found["gate"], data["cost"], found["changes"]) == (None, None, [])


def test_a_document_in_a_file_leaves_the_report_on_stdout(capsys: Capture) -> None:
    assert main([*store(QUIET, QUIET), "--json", "found.json"]) == 0

    assert (
        json.loads(Path("found.json").read_text())["data"]["comparison"]["outcome"]
        == "no_difference"
    )
    assert "no difference beyond the noise" in capsys.readouterr().out


def test_one_run_a_side_without_repeats_ends_with_4(capsys: Capture) -> None:
    assert main(store((0.1,), (0.2,))) == 4

    said = capsys.readouterr().out
    assert "too noisy to tell: a step takes 100 ms in A and 200 ms in B" in said
    assert "no repeats" in said


def test_one_run_a_side_uses_what_lies_in_the_store(capsys: Capture) -> None:
    for i in range(20):
        store_run(Path(), 0.1 + 0.001 * (i % 3), number=100 + i)

    assert main([*store((0.1,), (0.2,)), "--fail-if-slower", "5%"]) == 5
    assert "20 stored runs" in " ".join(capsys.readouterr().out.split())


# -- the gate


@pytest.mark.parametrize(
    ("times", "code", "word", "says"),
    [
        (QUIET, 0, None, "passed"),
        (SLOWER, 5, "gate_not_met", "failed: B is slower by more than the limit of 5.0 %"),
        (LITTLE, 4, "too_noisy", "too noisy to tell"),
        ((0.1, 0.13, 0.2), 4, "too_noisy", "too noisy to tell"),
    ],
)
def test_the_gate_has_a_code_for_each_answer(
    times: tuple[float, ...], code: int, word: str | None, says: str, capsys: Capture
) -> None:
    words = [*store(QUIET, times), "--fail-if-slower", "5%", "--json", "found.json"]

    assert main(words) == code

    document = json.loads(Path("found.json").read_text())
    assert document["exit_code"] == code
    assert [item["code"] for item in document["errors"]] == ([] if word is None else [word])
    assert says in " ".join(capsys.readouterr().out.split())


def test_a_failed_run_never_passes(capsys: Capture) -> None:
    words = store(QUIET, QUIET, end=ProcessEnd(state=RunState.FAILED, exit_code=1))

    assert main(words) == 0
    assert main([*words, "--fail-if-slower", "5%"]) == 3
    assert main([*words, "--fail-if-slower", "5%", "--force"]) == 3
    assert "failed (code 1)" in capsys.readouterr().out


def test_unlike_runs_are_judged_only_where_the_user_insists(capsys: Capture) -> None:
    words = store(QUIET, QUIET, record=with_machine(cpu="another"))

    assert main([*words, "--fail-if-slower", "5%"]) == 2
    assert "a CPU; another" in capsys.readouterr().out
    assert main([*words, "--fail-if-slower", "5%", "--force"]) == 0
    assert main(words) == 0


@pytest.mark.parametrize("step_s", [None, float("nan"), float("inf")])
def test_a_run_without_a_step_time_never_passes(step_s: float | None, capsys: Capture) -> None:
    words = store(QUIET, (0.1, 0.1))
    store_run(Path(), None, number=50)

    code = main([*words, run_id_of(50), "--fail-if-slower", "5%", "--force", "--json"])

    document = json.loads(capsys.readouterr().out)
    assert (code, document["errors"][0]["code"]) == (2, "not_comparable")
    assert document["data"]["comparison"]["gate"]["outcome"] == "undecided"


def test_a_run_of_a_newer_schema_is_refused_with_its_name(capsys: Capture) -> None:
    words = store(QUIET, QUIET)
    path = Path(".steptime/runs") / run_id_of(1) / "command.json"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 2'))

    assert main(words) == 1

    said = capsys.readouterr().err
    assert run_id_of(1) in said
    assert "schema 2 is newer" in said


# -- which runs are meant


def test_runs_are_named_by_age_by_beginning_and_by_path(tmp_path: Path, capsys: Capture) -> None:
    store(QUIET, SLOWER)
    elsewhere = store_run(tmp_path / "base", 0.1, number=90)

    words = ["compare", "last~1", str(elsewhere.folder), "--", "last", run_id_of(3)]
    data = document_of(words, capsys)["data"]["comparison"]

    assert [run["run_id"] for run in data["a"]] == [run_id_of(4), run_id_of(90)]
    assert [run["run_id"] for run in data["b"]] == [run_id_of(5), run_id_of(3)]


def test_options_may_stand_on_either_side(capsys: Capture) -> None:
    words = store(QUIET, SLOWER)
    place = words.index("--")

    before = [*words[:place], "--fail-if-slower", "5%", *words[place:]]
    assert (main(before), main([*words, "--fail-if-slower=5%"])) == (5, 5)
    capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["last"], "`--` must stand between"),
        (["--", "last"], "no run of A was named"),
        (["last", "--"], "no run of B was named"),
        (["last", "--", "last", "--fail-if-slower", "0.05"], "must be a percentage, got `0.05`"),
        (["last", "--", "last", "--fail-if-slower", "nan%"], "must be a percentage"),
        (["last", "--", "last", "--fail-if-slower", "-3%"], "must not be negative, got `-3%`"),
        (
            ["last", "--", "last", "--hourly-price", "cheap"],
            "must be the price of an hour",
        ),
        (["last", "--", "last", "--unknown"], "--unknown"),
        (["last", "last", "--", "last", "--pairs"], "as many runs of A as of B, got 2 and 1"),
        (["last~9", "--", "last"], "there is no run `last~9`"),
        (["no/such/folder", "--", "last"], "`no/such/folder` is no run folder"),
        (["--json", "last~1", "last", "--", "last"], "--json would write to `last~1`"),
    ],
)
def test_wrong_usage_says_what_is_wrong(words: list[str], says: str, capsys: Capture) -> None:
    store_run(Path(), 0.1)

    assert main(["compare", *words]) == 2
    assert says in capsys.readouterr().err


def test_a_failure_behind_the_dashes_is_a_document_too(capsys: Capture) -> None:
    store_run(Path(), 0.1)

    assert main(["compare", "last", "--", "last~9", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["errors"][0]["code"] == "not_found"


def test_a_run_from_before_the_mean_is_folded_anew(capsys: Capture) -> None:
    words = store(QUIET, QUIET)
    run = Path(".steptime/runs") / run_id_of(1)
    document = json.loads((run / "measurement.json").read_text())
    del document["steady"]["mean_s"]
    (run / "measurement.json").write_text(json.dumps(document))

    assert main(words) == 2  # there is nothing raw to fold
    assert "0 steps that count" in " ".join(capsys.readouterr().out.split())


def test_percentages_and_prices() -> None:
    assert parse_percent("5%", flag="--x") == 0.05
    assert parse_percent("2.5 %", flag="--x") == 0.025
    assert (parse_price("2.5/h", flag="--x"), parse_price("3", flag="--x")) == (2.5, 3.0)
    with pytest.raises(UsageError, match="--x must be a percentage"):
        parse_percent("5", flag="--x")
    with pytest.raises(UsageError, match="above 0"):
        parse_price("0", flag="--x")


def test_names_from_the_users_side_are_no_markup(capsys: Capture) -> None:
    hostile = {"argv": ("python", "train.py", "--name", "[red]\x1b[31mx[/red]", "--lr", "0.1")}

    assert main(store(QUIET, SLOWER, record=hostile)) == 0

    said = capsys.readouterr().out
    assert "[red]" in said
    assert "\x1b" not in said
