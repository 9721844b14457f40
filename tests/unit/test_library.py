"""What a Python program gets from the library calls, without a process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import steptime
from steptime.app.run.command_words import as_argv
from steptime.app.study import tune as tune_app
from steptime.errors import RecipeError, UsageError
from steptime.measure.values.model.work import Count
from steptime.tune.study_options import StudyOptions
from steptime.tune.values.study_progress import StudyProgress
from steptime.tune.values.study_values import Study
from study_cases import faster


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[StudyOptions]:
    """The options of each study, which finds something faster at once."""
    found: list[StudyOptions] = []

    def run_study(options: StudyOptions, *, progress: Callable[[StudyProgress], None]) -> Study:
        found.append(options)
        progress(StudyProgress(study_id="s", phase="probe", trial=0))
        return faster()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tune_app, "run_study", run_study)
    return found


def test_tune_returns_the_study_and_writes_its_recipe(asked: list[StudyOptions]) -> None:
    seen: list[StudyProgress] = []

    tuned = steptime.tune("python train.py", budget_s=30, exclude=["compile"], progress=seen.append)

    (options,) = asked
    assert (options.command, options.budget_s) == (("python", "train.py"), 30)
    assert "compile" in options.excluded
    assert not options.reads_input, "the standard input belongs to the program"
    assert tuned.recipe_file == Path("tuned.toml")
    assert tuned.recipe_file.is_file()
    assert tuned.outcome is tuned.study.outcome
    assert tuned.speedup is tuned.study.speedup
    assert tuned.study.study_id in repr(tuned)
    assert "tuned.toml" in str(tuned)
    assert tuned._repr_html_().startswith("<pre>")
    assert len(seen) == 1


def test_in_a_notebook_a_report_is_text_too(
    asked: list[StudyOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned = steptime.tune("python train.py")
    outside = str(tuned)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)

    assert str(tuned) == outside
    assert outside.splitlines()[0] in tuned._repr_html_()


def test_a_recipe_may_stay_in_the_folder_of_the_study(
    asked: list[StudyOptions], tmp_path: Path
) -> None:
    assert steptime.tune(["python", "x.py"], output=None).recipe_file is None
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_recipe_is_never_written_over(asked: list[StudyOptions]) -> None:
    Path("tuned.toml").write_text("[tool.poetry]\n")

    with pytest.raises(RecipeError, match="is not a recipe"):
        steptime.tune("python x.py")
    assert asked == []


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"levers": ["autocost"]}, "levers: there is no lever `autocost`"),
        ({"exclude": ["zzz"]}, "exclude: there is no lever `zzz`"),
        ({"budget_s": 0}, "budget_s must be above 0"),
        ({"run_steps": 0}, "run_steps must be 1 or more"),
        ({"levers": "autocast,tf32"}, "levers takes a list of names, got a text"),
        ({"exclude": "autocast"}, "exclude takes a list of names, got a text"),
    ],
)
def test_a_wrong_argument_is_named(
    asked: list[StudyOptions], wrong: dict[str, object], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        steptime.tune("python x.py", **wrong)  # type: ignore[arg-type]
    assert asked == []


def test_a_side_without_runs_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run of B was named"):
        steptime.compare([tmp_path], [])


def test_a_command_is_its_words_or_one_string() -> None:
    assert as_argv("python 'my train.py'", what="observe") == ("python", "my train.py")
    assert as_argv(["python", Path("train.py")], what="observe") == ("python", "train.py")


def test_windows_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")

    with pytest.raises(UsageError, match=r"`steptime\.observe` does not work on Windows"):
        as_argv("python x.py", what="observe")


@pytest.mark.parametrize("step", [0, -1])
def test_a_profiled_step_is_one_from_one_on(step: int) -> None:
    with pytest.raises(UsageError, match="from 1 on"):
        steptime.observe("python x.py", profile=step)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: steptime.fit("true", memory_limit=0), "memory_limit must be above 0, got 0"),
        (lambda: steptime.fit("true", memory_limit=1, on="L40S"), "memory_limit and on both name"),
        (lambda: steptime.fit("true", exclude=["zzz"]), "exclude: there is no lever `zzz`"),
        (lambda: steptime.observe("true", hourly_price=-1), "hourly_price must be the price"),
        (lambda: steptime.attach(1, "profile", steps=0), "profile takes 1 to 50 steps, got 0"),
        (lambda: steptime.doctor(data="nowhere"), "data: `nowhere` is not there"),
        (
            lambda: steptime.verify_training("a", "b", margin=0.1, metric="m", seeds=1),
            "seeds must be 2 or more, got 1",
        ),
        (
            lambda: steptime.verify_training("a", "b", margin=0.1, metric="m", better="less"),
            "better must be `down` or `up`",
        ),
        (
            lambda: steptime.sweep("a", param="lr=1,2", metric="m", target=1, budget_s=1),
            "param takes a list of texts",
        ),
    ],
)
def test_an_error_speaks_of_arguments_not_of_options(
    call: Callable[[], object], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(steptime.SteptimeError, match=says) as caught:
        call()
    assert "--" not in f"{caught.value} {caught.value.hint}"


def test_dir_shows_the_surface_alone() -> None:
    assert dir(steptime) == sorted(steptime.__all__)


def test_a_count_is_printed_in_four_lines() -> None:
    count = Count(forward=1000, backward=2000, recomputed=0, macs=1500, by_dtype={"fp32": 3000})

    lines = str(count).splitlines()

    assert len(lines) == 4
    assert lines[0] == "3.00 kFLOP: forward 1.00 kFLOP, backward 2.00 kFLOP"
    assert lines[2] == "by type: fp32 100.0 %"


def test_a_room_of_the_same_name_never_hides_a_function() -> None:
    import steptime.compare.judge
    import steptime.tune.run_study

    assert callable(steptime.compare)
    assert callable(steptime.tune)

    import steptime.patch.values

    assert callable(steptime.patch)
    assert steptime.__version__
    assert {"observe", "load", "compare", "tune"} <= set(dir(steptime))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        steptime.nothing  # noqa: B018
