"""Another interpreter as an arm of a study: which ones are refused, and how it gets its place."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from steptime.app.run.recipe_loading import find_interpreter
from steptime.app.study.tune import choose_levers
from steptime.core.devices.machine_identity import MachineIdentity
from steptime.errors import UsageError
from steptime.levers import load
from steptime.levers.base import Preserves
from steptime.tune.recipe.recipe_file import make_recipe
from steptime.tune.recipe.recipe_setup import set_up
from steptime.tune.trials.facts.other_python import OtherPython, check_other_python
from steptime.tune.trials.trial_setting import add_variables, variables_of
from steptime.tune.values.recipe_values import Recipe, Script
from steptime.tune.values.study_values import Applied
from study_cases import faster

COMMAND = ("python", "train.py")
ENVIRONMENT = {"PATH": os.defpath}


def make(folder: Path, answer: object, *, name: str = "python") -> Path:
    """An interpreter that gives this answer."""
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    text = answer if isinstance(answer, str) else json.dumps(answer)
    path.write_text(f"#!/bin/sh\nprintf '%s\\n' 'welcome' '{text}'\n")
    path.chmod(0o755)
    return path


def check(path: Path | str, command: tuple[str, ...] = COMMAND) -> OtherPython:
    return check_other_python(str(path), command, ENVIRONMENT)


def refusal(path: Path | str, command: tuple[str, ...] = COMMAND) -> str:
    with pytest.raises(UsageError) as caught:
        check(path, command)
    assert caught.value.hint
    assert "\n" not in str(caught.value)
    return str(caught.value)


# -- which are taken


def test_one_with_torch_is_taken_with_its_versions(tmp_path: Path) -> None:
    path = make(tmp_path, {"python": [3, 13, 1], "torch": "2.14.0+cpu"})

    assert check(path) == OtherPython(
        path=str(path), python_version="3.13.1", torch_version="2.14.0+cpu"
    )


def test_a_link_stays_a_link_because_it_says_which_environment_it_is(tmp_path: Path) -> None:
    path = make(tmp_path, {"python": [3, 13, 1], "torch": "2.14.0"}, name="python3")
    (tmp_path / "bin" / "python").symlink_to(path)

    assert check(tmp_path / "bin" / "python").path == str(tmp_path / "bin" / "python")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"python": [3, 11, 7], "torch": None}, "has no torch."),
        (
            {"python": [3, 11, 7], "torch": None, "error": "ImportError: libtorch.so"},
            "has no torch (ImportError: libtorch.so).",
        ),
        ({"python": [3, 9, 1], "torch": "2.8.0"}, "is Python 3.9.1, and Steptime's guest needs"),
        ({"python": [3, 11, 7], "torch": "2.3.1"}, "has torch 2.3.1, and Steptime's guest needs"),
        ("hello", "is no Python that runs: it says nothing."),
        ("[1]", "is no Python that runs"),
    ],
)
def test_what_cannot_train_here_is_refused_in_a_sentence(
    tmp_path: Path, answer: object, says: str
) -> None:
    assert says in refusal(make(tmp_path, answer))


def test_what_is_not_there_or_cannot_be_run_is_refused(tmp_path: Path) -> None:
    assert "there is no file" in refusal(tmp_path / "gone" / "python")
    assert "is a folder" in refusal(tmp_path)
    plain = make(tmp_path, {"python": [3, 13, 1], "torch": "2.14.0"})
    plain.chmod(0o644)
    assert "is not executable" in refusal(plain)
    plain.chmod(0o755)
    plain.write_text("#!/nowhere/interpreter\n")
    assert "does not run" in refusal(plain)


def test_it_must_have_what_the_command_starts(tmp_path: Path) -> None:
    path = make(tmp_path, {"python": [3, 13, 1], "torch": "2.14.0"})

    assert "there is no `torchrun` beside" in refusal(path, ("torchrun", "train.py"))
    assert "names /usr/bin/python by its path" in refusal(path, ("/usr/bin/python", "train.py"))
    assert check(path, ("bash", "train.sh")).torch_version == "2.14.0"


# -- its place


def test_it_is_tried_where_it_was_named_and_nowhere_else() -> None:
    def names(only: tuple[str, ...] | None, **options: bool) -> set[str]:
        return {lever.name for lever in choose_levers(only, (), **options)}

    assert "interpreter" not in names(None)
    assert "interpreter" in names(None, with_interpreter=True)
    assert names(("compile",), with_interpreter=True) == {"compile", "interpreter"}
    assert names(("interpreter",)) == {"interpreter"}


def test_its_folder_comes_first_on_the_path_and_it_is_judged_by_rounding() -> None:
    lever, settings = load("interpreter"), {"python": "/other/bin/python"}
    state = (Applied(name="interpreter", settings=settings),)

    found = variables_of(state, {"interpreter": lever}, {"python": "/other/bin/python"})

    assert add_variables({"PATH": "/usr/bin"}, found) == {"PATH": "/other/bin:/usr/bin"}
    assert lever.preserves is Preserves.NUMERIC


def recipe_with(path: Path) -> Recipe:
    made = make_recipe(faster(), script=Script(command=COMMAND), machine=MachineIdentity())
    applied = Applied(name="interpreter", settings={"python": str(path)})
    return replace(made, levers=(applied,))


def test_a_recipe_whose_interpreter_is_gone_says_so(tmp_path: Path) -> None:
    path = make(tmp_path, {})
    here, gone = recipe_with(path), recipe_with(tmp_path / "gone")

    with_it = set_up(here, path="t", differences=(), libraries=find_interpreter(here))
    without = set_up(gone, path="t", differences=(), libraries=find_interpreter(gone))

    assert with_it.variables == {"PATH": str(path.parent)}
    assert without.variables == {}
    assert without.use.levers[0].error == f"{tmp_path / 'gone'} is not installed here"
