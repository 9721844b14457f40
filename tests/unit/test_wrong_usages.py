"""A hundred wrong usages, each with the code and the first line of what a person reads.

`cli_wrong_usages.toml` has them. With `--update-golden` it is written again; read the difference.
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from steptime.cli import main
from unit.test_cli import make_run

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = Path(__file__).parent.parent / "cli_wrong_usages.toml"
USAGES = tomllib.loads(FILE.read_text(encoding="utf-8"))["usage"]
HEAD = "# Wrong usages, and what each is answered; unit/test_wrong_usages.py holds it.\n"

# How argparse itself, or a failure of ours, would look.
INSIDE = ("Traceback", "argument ", "invalid choice", "Namespace(", "unrecognized", "None")


def make_place(folder: Path) -> str:
    """A folder with one run, one study and some files; return the id of the run."""
    run = make_run(folder)
    study = folder / ".steptime" / "studies" / "20201121-101500-aaaa"
    study.mkdir(parents=True)
    (study / "study.json").write_text("{")
    (folder / "train.py").write_text("import torch\n")
    (folder / "notes.txt").write_text("mine\n")
    (folder / "data").mkdir()
    return run.run_id


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return make_place(tmp_path)


def answer(command: str, capsys: pytest.CaptureFixture[str], place: str) -> tuple[int, str, str]:
    """The code, the first line of the answer, and all of it."""
    code = main.main(shlex.split(command.replace("RUN", place))[1:])
    said = capsys.readouterr()
    text = said.err if said.err.strip() else said.out
    text = text.replace(str(Path.cwd()), "HERE").replace(place, "RUN")
    return code, text.strip().splitlines()[0], text


def test_each_wrong_usage_is_answered_in_words(
    place: str, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    found, inside = [], []
    for usage in USAGES:
        code, first, text = answer(usage["command"], capsys, place)
        found.append({"command": usage["command"], "code": code, "answer": first})
        inside += [(usage["command"], word) for word in INSIDE if word in text]
    if request.config.getoption("--update-golden"):
        rows = (
            "".join(
                f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in row.items()
            )
            for row in found
        )
        FILE.write_text(HEAD + "".join(f"\n[[usage]]\n{row}" for row in rows), encoding="utf-8")

    assert inside == []
    assert found == USAGES
    assert not (Path.cwd() / "started").exists()


def test_there_are_a_hundred_and_none_of_them_is_a_success() -> None:
    commands = [usage["command"] for usage in USAGES]

    assert len(set(commands)) == len(commands) >= 100
    assert {usage["code"] for usage in USAGES} <= {1, 2, 4, 5, 126, 127}
    assert {name for name in main.COMMANDS if name != "schema"} <= {
        shlex.split(command)[1] for command in commands if len(shlex.split(command)) > 1
    }
