"""`steptime tune`, and studies in `list` and `show`: options, exit codes, what is said where."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from steptime.app.study import tune
from steptime.cli import main
from steptime.cli.option_values import parse_time
from steptime.cli.progress import ProgressPrinter
from steptime.core.codec import to_json
from steptime.core.note import Note
from steptime.errors import ContainmentError, UsageError
from steptime.levers import NAMES
from steptime.report.text.progress_text import live_line
from steptime.tune.recipe.recipe_file import read_recipe
from steptime.tune.study_options import StudyOptions
from steptime.tune.values.study_progress import StudyProgress
from steptime.tune.values.study_values import Study, TrialEnd
from study_cases import (
    BF16,
    CASES,
    FUSED,
    OBSERVED,
    STUDY_ID,
    failed_baseline,
    faster,
    interrupted,
    nothing_helps,
    speedup,
    too_noisy,
    trial,
)

Capture = pytest.CaptureFixture[str]
COMMAND = ("--", "python", "train.py", "--lr", "3e-4")


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[Study | BaseException], list]:
    """Lets the next study end so; the options it was asked with are kept in the list."""

    def set_answer(found: Study | BaseException) -> list[StudyOptions]:
        asked: list[StudyOptions] = []

        def run_study(options: StudyOptions, *, progress: Callable[[StudyProgress], None]) -> Study:
            asked.append(options)
            progress(StudyProgress(study_id=STUDY_ID, phase="probe", trial=0, tier="isolated"))
            if isinstance(found, BaseException):
                raise found
            return found

        monkeypatch.setattr(tune, "run_study", run_study)
        return asked

    return set_answer


# -- options


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("10m", 600), ("1h", 3600), ("1.5m", 90), ("2d", 172_800)]
)
def test_a_budget_is_a_number_with_its_unit(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["10", "m", "0s", "10 m", "1w", ""])
def test_any_other_budget_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UsageError, match="30s, 10m or 1h"):
        parse_time(text)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--budget", "10", *COMMAND], "--budget must be a time such as 30s"),
        (["--levers", "autocost", *COMMAND], "there is no lever `autocost`"),
        (["--levers", "compile", "--exclude", "compile", *COMMAND], "no lever is left to try"),
        (["--exclude", "zzz", *COMMAND], "--exclude: there is no lever `zzz`"),
        (["--run-steps", "0", *COMMAND], "--run-steps must be 1 or more"),
        (["--require-speedup", "nan", *COMMAND], "--require-speedup must be above 0"),
        (["--output", "no/such/x", *COMMAND], "--output: there is no folder `no/such`"),
        (["--report", "no/such/x", *COMMAND], "--report: there is no folder"),
        (["--json=no/such/x", *COMMAND], "--json: there is no folder"),
        (["--budget", "-10m", *COMMAND], "--budget must not be negative, got `-10m`"),
        (["--"], "no command was given"),
    ],
)
def test_wrong_usage_is_said_before_anything_starts(
    words: list[str], says: str, answer: Callable, capsys: Capture
) -> None:
    asked = answer(faster())
    assert main.main(["tune", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert asked == []


def test_a_lever_that_was_mistyped_is_guessed(answer: Callable, capsys: Capture) -> None:
    answer(faster())
    assert main.main(["tune", "--levers", NAMES[0][:-1], *COMMAND]) == 2
    assert f"Did you mean `{NAMES[0]}`?" in capsys.readouterr().err


def test_the_options_reach_the_study(answer: Callable) -> None:
    asked = answer(nothing_helps())
    words = ["--budget", "30s", "--exclude", NAMES[1], "--run-steps", "900", "--fresh"]
    words += ["--share-network", "--unsafe-trials", "--store", "s", "--output", "x.toml"]
    assert main.main(["tune", *words, *COMMAND]) == 0
    (options,) = asked
    assert options.command == ("python", "train.py", "--lr", "3e-4")
    assert (options.budget_s, options.run_steps) == (30.0, 900)
    assert (options.excluded, options.store) == ((NAMES[1],), Path("s"))
    assert options.is_fresh
    assert options.share_network
    assert options.allow_unsafe
    alone = tuple(name for name in NAMES if name != "interpreter")  # nobody named one
    assert tuple(lever.name for lever in options.levers) == alone
    assert options.other_python is None


def test_another_interpreter_reaches_the_study(answer: Callable, tmp_path: Path) -> None:
    asked = answer(nothing_helps())
    path = tmp_path / "python"
    path.write_text('#!/bin/sh\necho \'{"python": [3, 13, 1], "torch": "2.14.0"}\'\n')
    path.chmod(0o755)

    words = ["--python", str(path), "--levers", NAMES[0]]
    assert main.main(["tune", *words, "--", "python", "train.py"]) == 0

    (options,) = asked
    assert options.other_python is not None
    assert options.other_python.torch_version == "2.14.0"
    assert [lever.name for lever in options.levers] == [NAMES[0], "interpreter"]


def test_an_interpreter_that_is_not_there_is_one_message(answer: Callable, capsys: Capture) -> None:
    asked = answer(nothing_helps())

    assert main.main(["tune", "--python", "/nowhere/python", *COMMAND]) == 2

    assert asked == []
    assert "--python: there is no file /nowhere/python." in capsys.readouterr().err


def test_levers_can_be_chosen(answer: Callable) -> None:
    asked = answer(nothing_helps())
    assert main.main(["tune", "--levers", f"{NAMES[1]}, {NAMES[0]}", *COMMAND]) == 0
    assert [lever.name for lever in asked[0].levers] == [NAMES[0], NAMES[1]]


def test_the_levers_of_a_recipe_are_tried_beside_those_that_are_named(answer: Callable) -> None:
    asked = answer(faster())
    assert main.main(["tune", *COMMAND]) == 0
    words = ["--recipe", "tuned.toml", "--levers", f"compile,{BF16.name}"]

    assert main.main(["tune", *words, *COMMAND]) == 0
    chosen = {lever.name for lever in asked[1].levers}
    assert chosen == {"compile", BF16.name, FUSED.name}
    assert read_recipe(Path("tuned.toml")).levers == (BF16, FUSED)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--recipe", "tuned.toml"], 2, "--recipe needs --levers"),
        (["--recipe", "none.toml", "--levers", "compile"], 2, "there is no recipe none.toml"),
    ],
)
def test_a_recipe_that_adds_nothing_is_refused(
    answer: Callable, capsys: Capture, words: list[str], code: int, message: str
) -> None:
    answer(faster())

    assert main.main(["tune", *words, *COMMAND]) == code
    assert message in capsys.readouterr().err


# -- endings


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("faster", 0),
        ("nothing_helps", 0),
        ("too_noisy", 4),
        ("interrupted", 130),
        ("failed_baseline", 3),
        ("mixed", 0),
    ],
)
def test_the_exit_code_tells_the_outcome(
    name: str, code: int, answer: Callable, capsys: Capture
) -> None:
    answer(CASES[name]())
    assert main.main(["tune", "--json", *COMMAND]) == code
    document = json.loads(capsys.readouterr().out)
    assert (document["exit_code"], document["command"]) == (code, "tune")


def test_a_budget_that_was_too_short_for_an_answer_is_a_time_limit(answer: Callable) -> None:
    answer(replace(nothing_helps(), outcome=None))
    assert main.main(["tune", *COMMAND]) == 124
    late = replace(OBSERVED, end=TrialEnd.TIMED_OUT)
    answer(replace(failed_baseline(), trials=(late,)))
    assert main.main(["tune", *COMMAND]) == 124


@pytest.mark.parametrize(
    ("study", "required", "code"),
    [
        (faster(), "1.2", 0),
        (faster(), "1.26", 0),
        (faster(), "1.3", 5),  # the step's is above it, the loop's is not
        (nothing_helps(), "1.01", 5),
        (nothing_helps(), "1.0", 0),
        (too_noisy(), "1.2", 4),
        (interrupted(), "1.2", 130),
    ],
)
def test_a_gate_is_met_by_the_low_end_of_the_interval(
    study: Study, required: str, code: int, answer: Callable, capsys: Capture
) -> None:
    answer(study)
    assert main.main(["tune", "--json", "--require-speedup", required, *COMMAND]) == code
    out, err = capsys.readouterr()
    codes = [error["code"] for error in json.loads(out)["errors"]]
    assert ("gate_not_met" in codes) == (code == 5)
    assert ("was not proven" in err) == (code == 5)


def test_a_place_where_trials_could_do_harm_is_refused(answer: Callable, capsys: Capture) -> None:
    answer(ContainmentError("a trial could write over your files here."))
    assert main.main(["tune", "--json", *COMMAND]) == 1
    out, err = capsys.readouterr()
    assert "write over your files" in err
    assert json.loads(out)["errors"][0]["code"] == "containment"


def test_an_interrupt_before_any_answer_is_still_a_document(
    answer: Callable, capsys: Capture
) -> None:
    answer(KeyboardInterrupt())
    assert main.main(["tune", "--json", *COMMAND]) == 130
    document = json.loads(capsys.readouterr().out)
    assert [error["code"] for error in document["errors"]] == ["interrupted"]


# -- what goes where


def test_the_report_goes_to_stdout_and_the_conversation_to_stderr(
    answer: Callable, capsys: Capture
) -> None:
    answer(faster())
    assert main.main(["tune", *COMMAND]) == 0
    out, err = capsys.readouterr()
    assert "outcome    faster: 1.31x" in out
    last = "steptime run --recipe tuned.toml -- python train.py --lr 3e-4"
    assert out.splitlines()[-1].strip() == last
    assert err.splitlines() == [
        "steptime: trials are isolated: everything that a trial writes lands in memory and "
        "vanishes with it"
    ]


def test_the_document_can_go_to_a_file_beside_the_report(
    answer: Callable, tmp_path: Path, capsys: Capture
) -> None:
    answer(faster())
    assert main.main(["tune", "--json=result.json", *COMMAND]) == 0
    assert "faster" in capsys.readouterr().out
    data = json.loads((tmp_path / "result.json").read_text())["data"]
    assert data["recipe_file"] == "tuned.toml"


def test_a_report_in_a_file_leaves_one_line_on_stderr(
    answer: Callable, tmp_path: Path, capsys: Capture
) -> None:
    answer(faster())
    assert main.main(["tune", "--report", "r.txt", *COMMAND]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("steptime: faster: 1.31x")
    assert "lever" in (tmp_path / "r.txt").read_text()


def test_the_recipe_is_written_where_the_user_says(answer: Callable, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("x = 1\n")
    answer(faster())
    assert main.main(["tune", "--output", "my.toml", *COMMAND]) == 0
    recipe = read_recipe(tmp_path / "my.toml")
    assert recipe.levers == (BF16, FUSED)
    assert recipe.script.files == ("train.py",)
    assert recipe.proof.study_id == STUDY_ID


@pytest.mark.parametrize("make", [nothing_helps, too_noisy, interrupted])
def test_without_a_proof_there_is_no_recipe(
    make: Callable[[], Study], answer: Callable, tmp_path: Path
) -> None:
    answer(make())
    main.main(["tune", *COMMAND])
    assert not (tmp_path / "tuned.toml").exists()


def test_a_file_that_is_no_recipe_is_refused_before_anything_starts(
    answer: Callable, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "tuned.toml").write_text("[tool.poetry]\n")
    asked = answer(faster())
    assert main.main(["tune", *COMMAND]) == 2
    assert "is not a recipe of Steptime; it stays as it is" in capsys.readouterr().err
    assert asked == []


def test_a_recipe_that_cannot_be_written_costs_the_recipe_alone(
    answer: Callable, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(faster())
    monkeypatch.setattr(tune, "check_output", lambda path: None)
    (tmp_path / "tuned.toml").write_text("appeared meanwhile")
    assert main.main(["tune", "--json", *COMMAND]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["status"] == "partial"
    assert document["errors"][0]["code"] == "recipe"
    assert document["data"]["recipe_file"] is None


# -- progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def make_progress(**changes: object) -> StudyProgress:
    base = StudyProgress(
        study_id=STUDY_ID,
        phase="live",
        trial=3,
        num_trials=14,
        state=(FUSED,),
        best=speedup(1.41, 1.37, 1.46),
        best_state=(BF16,),
        left_s=252.4,
        tier="isolated",
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def test_a_terminal_has_one_live_line_with_phase_trial_best_and_time_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    file = Terminal()
    teller = ProgressPrinter(file)
    teller(make_progress())
    teller(make_progress(ended=trial(3, FUSED, speedup=speedup(1.1, 1.05, 1.2))))
    teller.close()
    first, *rest = file.getvalue().split("\r\x1b[K")
    assert first == ""
    assert rest[0].startswith("steptime: trials are isolated")
    assert rest[1] == (
        "trying levers (fused_optimizer fused) · trial 3 of 14 · best 1.41x autocast bf16 · "
        "4 min 12 s left"
    )
    assert rest[-1] == ""
    assert file.getvalue().count("\n") == 1


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_dumb_terminal_and_a_pipe_get_one_plain_line_a_finished_trial(
    term: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    for file in (Terminal(), io.StringIO()):
        teller = ProgressPrinter(file)
        ended = trial(3, FUSED, speedup=speedup(1.1, 1.05, 1.2))
        for progress in (make_progress(), make_progress(ended=ended), make_progress(ended=ended)):
            teller(progress)
        teller.close()
        lines = file.getvalue().splitlines()
        assert lines[1:] == [
            "trial 3 of 14 · fused_optimizer fused: 1.10x, 95 % interval 1.05x to 1.20x, "
            "12 pairs, helps · 4 min 12 s left"
        ]
        assert "\x1b" not in file.getvalue()


def test_a_note_is_said_once() -> None:
    file = io.StringIO()
    teller = ProgressPrinter(file)
    for _ in range(3):
        teller(make_progress(note=Note(code="resumed")))
    teller(make_progress(note=Note(code="moon", facts={"phase": "full"})))
    lines = file.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[1].startswith("steptime: this continues the study")
    assert lines[2] == "steptime: moon phase full"


def test_why_the_trials_are_not_better_contained_is_said_first() -> None:
    file = io.StringIO()
    ProgressPrinter(file)(make_progress(tier="guarded", tier_reasons=("No user namespaces here.",)))
    assert "guarded: " in file.getvalue()
    assert "(nothing better is possible here: No user namespaces here)" in file.getvalue()


def test_a_live_line_is_never_wider_than_the_terminal() -> None:
    assert len(live_line(make_progress(), width=40)) <= 40


def test_a_stderr_that_is_closed_costs_the_progress_only() -> None:
    file = io.StringIO()
    file.close()
    ProgressPrinter(file)(make_progress())
    ProgressPrinter(None)(make_progress())


# -- studies


def store_study(folder: Path, study: Study) -> None:
    place = folder / ".steptime" / "studies" / study.study_id
    place.mkdir(parents=True)
    text = json.dumps({**to_json(study), "key": "abc"})
    (place / "study.json").write_text(text)


def test_studies_are_listed_newest_first(tmp_path: Path, capsys: Capture) -> None:
    store_study(tmp_path, faster())
    newer = replace(interrupted(), study_id="20261121-090000-aaaa", started_unix_s=2e9)
    store_study(tmp_path, newer)
    begun = tmp_path / ".steptime" / "studies" / "20261122-090000-bbbb"
    begun.mkdir()
    (begun / "study.json").write_text('{"schema": 1, "key": "x", "started_unix_s": 1.0}')
    assert main.main(["list", "studies"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:2] == [newer.study_id, "interrupted"]
    assert lines[2].split()[:4] == [STUDY_ID, "faster", "1.31x", "6"]
    assert lines[-1].strip() == f"steptime show {newer.study_id} --store {tmp_path}"


def test_a_study_is_explained_choice_by_choice(tmp_path: Path, capsys: Capture) -> None:
    store_study(tmp_path, faster())
    assert main.main(["show", "last"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "1. The command was compared with itself 24 times" in out
    assert "2. autocast applies here. It could give at most 9.10x." in out
    assert "3. autocast alone, over the reference: 1.41x (1.37x to 1.46x, n = 12), a gain." in out
    assert "4. gremlin x n 3" in out
    assert "outcome faster: 1.31x" in out


def test_a_study_goes_on_with_the_options_that_it_was_given(
    tmp_path: Path, capsys: Capture
) -> None:
    given = ("--exclude", "compile", "--fresh", "--store", ".")
    store_study(tmp_path, replace(interrupted(), options=given))
    right = "steptime tune --exclude compile --store . -- python train.py"
    assert main.main(["show"]) == 0
    assert right in capsys.readouterr().out
    assert main.main(["report", "--no-open"]) == 0
    assert right in Path(capsys.readouterr().out.strip()).read_text()


def test_the_recipe_in_the_studys_folder_can_be_used(tmp_path: Path, capsys: Capture) -> None:
    store_study(tmp_path, faster())
    recipe = tmp_path / ".steptime" / "studies" / STUDY_ID / "tuned.toml"
    recipe.write_text("")
    assert main.main(["show", STUDY_ID[:8]]) == 0
    assert f"--recipe {recipe}" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["list"], ["show", "last"], ["list", "studies"]])
def test_studies_are_documents_too(words: list[str], tmp_path: Path, capsys: Capture) -> None:
    store_study(tmp_path, faster())
    assert main.main([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["command"], document["status"]) == (words[0], "ok")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["list", "studies"], "there are no studies in"),
        (["show", "last"], "Make one: steptime run -- python train.py"),
    ],
)
def test_where_there_is_no_study_it_is_said_how_to_begin(
    words: list[str], says: str, capsys: Capture
) -> None:
    assert main.main(words) == 2
    assert says in capsys.readouterr().err


def test_an_unknown_study_names_the_nearest(tmp_path: Path, capsys: Capture) -> None:
    store_study(tmp_path, faster())
    assert main.main(["show", "20261120-101501"]) == 2
    assert f"Nearest: {STUDY_ID}" in capsys.readouterr().err


def test_a_store_of_nothing_but_unborn_studies_is_an_empty_list(
    tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / ".steptime" / "studies").mkdir(parents=True)
    assert main.main(["list", "studies"]) == 0
    assert "steptime tune -- python train.py" in capsys.readouterr().out
    assert main.main(["show"]) == 2


def test_a_damaged_study_is_one_message(tmp_path: Path, capsys: Capture) -> None:
    store_study(tmp_path, faster())
    path = tmp_path / ".steptime" / "studies" / STUDY_ID / "study.json"
    path.write_text("{")
    assert main.main(["show", STUDY_ID]) == 1
    assert "is not JSON" in capsys.readouterr().err
