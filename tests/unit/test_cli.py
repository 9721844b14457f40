"""The command line: what it says, where, and the codes it ends with."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import steptime
from steptime.app.run import prepare
from steptime.app.run.attempt import attempt
from steptime.app.run.observe import EndedRun
from steptime.app.run.prepare import RunOptions, RunPlan
from steptime.app.stored.load import load_run, save
from steptime.cli import list as lists
from steptime.cli import main, output
from steptime.cli import parser as parsers
from steptime.cli.option_table import add_table
from steptime.cli.run import run
from steptime.core.devices.machine_identity import MachineIdentity
from steptime.core.process_end import ProcessEnd, RunState
from steptime.core.store import Run, create_run, write_value
from steptime.errors import SteptimeError, StoreError, UsageError
from steptime.launch.values import CommandRecord
from unit.builders import make_end, make_head, make_row

BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
NOON = 1_790_000_000.0
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


def make_run(
    folder: Path, *, exit_code: int = 0, argv: tuple[str, ...] = ("python", "x.py")
) -> Run:
    """A run whose command ended without a step."""
    run = create_run(folder, started_unix_s=NOON)
    record = CommandRecord(
        run_id=run.run_id,
        argv=argv,
        cwd=str(folder),
        environment_names=(),
        started_unix_s=NOON,
        steptime_version="0.1.0",
        python_version="3.11.7",
        git_revision=None,
        machine=MachineIdentity(hostname_hash="abc", cpu=None, num_cores=2, memory_bytes=None),
        parent_pid=1,
        ended_unix_s=NOON + 5,
        exit_code=exit_code,
    )
    write_value(run, "command.json", record)
    return run


def check_failure(capsys: Capture, *words: str, code: int, says: str) -> None:
    """The command fails with the code, says the words on stderr, and nothing on stdout."""
    assert main.main(list(words)) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err


# -- the shape of the command line


def test_without_a_command_the_help_goes_to_stderr(capsys: Capture) -> None:
    check_failure(capsys, code=2, says="steptime run -- python train.py")


def test_help_and_version_go_to_stdout(capsys: Capture) -> None:
    assert main.main(["--help"]) == 0
    assert main.main(["--version"]) == 0
    out, err = capsys.readouterr()
    assert "examples:" in out
    assert out.endswith(f"steptime {steptime.__version__}\n")
    assert err == ""


@pytest.mark.parametrize("words", [[], *([name] for name in main.COMMANDS)], ids=str)
def test_help_fits_two_screens_of_a_terminal(
    words: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main.main([*words, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 48  # two screens of 24 lines: whole sentences beat one screen of riddles
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["bogus"], "there is no command `steptime bogus`"),
        (["run", "--repot", "--", "true"], "Did you mean `--report`?"),
        (["run", "--rep", "--", "true"], "there is no option `--rep`"),
        (["run"], "no command was given"),
        (["run", "--"], "usage: steptime run [options] -- COMMAND"),
        (["run", "--json"], "--json needs a value"),
        (["list", "--store"], "--store needs a value"),
        (["data", "check", "--"], "no command was given"),
        (["data", "check", "--batches", "9" * 5000], "got `999999999... (5,000 digits)`"),
        (["data", "check", "--batches", "x"], "See `steptime data check --help`"),
    ],
)
def test_wrong_usage_says_what_is_wrong(words: list[str], says: str, capsys: Capture) -> None:
    check_failure(capsys, *words, code=2, says=says)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["rnu", "--", "true"], "Did you mean `steptime run`? See `steptime --help`."),
        (["bench"], "Did you mean `steptime data bench`?"),
        (["data", "chek"], "Did you mean `steptime data check`? See `steptime data --help`."),
        (["list", "--jsn"], "Did you mean `--json`? See `steptime list --help`."),
        (["data", "check", "--batchs=3"], "Did you mean `--batches`?"),
        (["verify", "training", "--margn", "1%"], "Did you mean `--margin`?"),
        (["--bogus", "list"], "there is no option `--bogus`.\n       See `steptime --help`."),
        (["list", "runs", "x"], "`x` is one word too many"),
        (["data", "check", "--batches", "-3", "x"], "--batches must be 2 or more, got -3"),
        (["data", "bench", "--window", "-3s", "x"], "--window must not be negative, got `-3s`"),
        (
            ["fit", "--memory-limit", "-8GiB", "true"],
            "must not be negative, got `-8GiB`",
        ),
        (["fit", "--json", "f", "--limt", "8GiB", "--", "true"], "there is no option `--limt`"),
        (["run", "--profile", "40", "true"], "If it belongs to --profile, write --profile=40"),
        (["data", "bench", "x", "--lr", "3"], "If it is the command's own: that comes after `--`"),
    ],
    ids=" ".join,
)
def test_wrong_words_get_the_nearest_right_ones(
    words: list[str], says: str, capsys: Capture
) -> None:
    assert main.main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert "argument" not in err


@pytest.mark.parametrize("verb", ["data", "verify"])
def test_a_group_without_a_word_prints_its_help(verb: str, capsys: Capture) -> None:
    check_failure(capsys, verb, code=2, says=f"usage: steptime {verb} COMMAND --help")


def test_a_verb_with_words_of_its_own_asks_for_the_dashes(capsys: Capture) -> None:
    ours = ["sweep", "--metric", "m", "--target", "-1e-3", "--budget", "5m"]
    words = [*ours, "python", "my train.py", "--", "x"]
    right = f"Write: steptime {' '.join(ours)} -- python 'my train.py' -- x"
    check_failure(capsys, *words, code=2, says=right)
    right = "Write: steptime data check --epochs 3 -- python train.py"
    words = ["data", "check", "--epochs", "3", "python", "train.py"]
    check_failure(capsys, *words, code=2, says=right)


def test_options_behind_the_dashes_belong_to_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[RunOptions] = []

    def stop(options: RunOptions, environment: object, *, tell: object) -> None:
        seen.append(options)
        raise UsageError("seen.")

    monkeypatch.setattr(prepare, "prepare", stop)
    command = ("x", "--json", "a", "--", "--help")
    for between in (["--"], []):
        assert main.main(["run", "--store", "s", *between, *command]) == 2
    assert seen == [RunOptions(command=command, store=Path("s"))] * 2


@pytest.mark.parametrize(
    ("ours", "between", "command"),
    [
        (["--json", "f"], ["--"], ["python"]),
        (["--json"], [], ["python", "x", "--json"]),
        (["--json=f", "--budget", "-5m"], [], ["python", "x"]),
        (["--json"], [], ["python", "x", "--", "y"]),
        (["--budget=", "--json="], [], ["python", "--budget", "1"]),
    ],
)
def test_a_command_begins_at_the_dashes_or_at_the_first_word_that_is_no_value(
    ours: list[str], between: list[str], command: list[str]
) -> None:
    for verb in ("tune", "fit"):
        parser = main.build_parser(verb)
        words = [verb, *ours, *between, *command]
        assert main._split(words, parser) == ([verb, *ours], command)


def test_options_are_what_their_table_says() -> None:
    parser = parsers.Parser(prog="x", usage="x", allow_abbrev=False)
    table = """\
  [RUN...]  which
group:
  --to {a,b}  which one, of
      100% (default: b)
  --peak TYPE=N  one (repeatable)
  --rate X=Y [X=Y ...]  some
  --steps [N]  how many (default: 3)
  --margin X  how much (required)
  -o, --output FILE  where
  --json [FILE]  a document
  --dry-run  nothing
"""
    add_table(parser, table)

    given = ["--margin=-1.5", "--steps", "--rate", "a=1", "b=2", "--peak", "x", "--peak", "y"]
    assert vars(parser.parse_args([*given, "-o", "f", "--json", "--", "r"])) == {
        "run": ["r"],
        "to": "b",
        "peak": ["x", "y"],
        "rate": ["a=1", "b=2"],
        "steps": 3,
        "margin": -1.5,
        "output": "f",
        "json": "-",
        "dry_run": False,
    }
    assert "group:\n" in parser.format_help()
    assert "which one, of 100% (default: b)" in " ".join(parser.format_help().split())
    for words in (["--margin", "x"], [], ["--margin", "1", "--to", "c"]):
        with pytest.raises(UsageError):
            parser.parse_args(words)


def test_windows_is_refused_in_one_sentence(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    check_failure(capsys, "run", "--", "true", code=2, says="does not work on Windows")


@pytest.mark.parametrize("flag", ["--report", "--json"])
def test_a_file_in_a_missing_folder_is_refused_before_anything_starts(
    flag: str, tmp_path: Path, capsys: Capture
) -> None:
    words = ("run", flag, "no/such/file", "--", "touch", "started")
    check_failure(capsys, *words, code=2, says=f"{flag}: there is no folder `no/such`.")
    assert not (tmp_path / "started").exists()


def test_a_folder_as_file_is_refused(tmp_path: Path, capsys: Capture) -> None:
    words = ("show", "last", f"--json={tmp_path}")
    check_failure(capsys, *words, code=2, says="is a folder")


# -- failures


@pytest.mark.parametrize(
    "words",
    [
        *(["report", "last", "-o", "F"], ["export", "last", "-o", "F"]),
        *(["run", "--json", "F", "--", "true"], ["run", "--report", "F", "--", "true"]),
        *(["patch", "tuned.toml", "-o", "F"], ["tune", "--report", "F", "--", "true"]),
        ["levers", "--json", "F"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_file_that_is_not_ours_is_not_written_over(
    words: list[str], tmp_path: Path, capsys: Capture
) -> None:
    file = tmp_path / "train.py"
    file.write_text("import torch\n")
    words = [str(file) if word == "F" else word for word in words]

    check_failure(
        capsys, *words, code=2, says="exists and is no report or document of Steptime; it"
    )
    assert file.read_text() == "import torch\n"


def test_what_we_wrote_is_written_again(tmp_path: Path, capsys: Capture) -> None:
    for words in (["levers", "--json"], ["schema", "run", "--json"]):
        for _ in range(2):
            assert main.main([*words, str(tmp_path / words[0])]) == 0
    assert capsys.readouterr().err == ""


def test_an_unexpected_failure_is_kept_in_a_file_that_is_named(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> int:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(lists, "execute", fail)
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".steptime").mkdir()
    for _ in range(12):
        assert main.main(["list"]) == 1
        err = capsys.readouterr().err
        found = re.search(r"The details are in (\S+)\.\n", err)
        assert found is not None
        assert "ZeroDivisionError: by zero" in Path(found[1]).read_text()
    assert len(list((tmp_path / ".steptime" / "errors").iterdir())) == 10


def test_a_number_that_python_does_not_read_is_no_failure_of_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("steptime.cli.list.execute", lambda options: int("9" * 5000))

    check_failure(capsys, "list", code=1, says="a number has more digits than Python reads (4,300)")


def test_a_failure_without_a_place_for_its_details_is_still_said(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "execute", lambda _: 1 // 0)
    monkeypatch.setattr(tempfile, "tempdir", "/no/such/folder")
    check_failure(capsys, "list", code=1, says="a failure of Steptime itself: ZeroDivisionError")


def test_ctrl_c_ends_with_130(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(lists, "execute", interrupt)
    assert main.main(["list"]) == 130
    assert capsys.readouterr() == ("", "")


def test_an_error_shows_its_hint_below() -> None:
    error = SteptimeError("the first line\nthe second", hint="what to do")
    assert output.error_text(error) == "error: the first line\n       the second\n       what to do"


def test_what_was_typed_comes_back_without_its_control_characters() -> None:
    text = output.error_text(SteptimeError("there is no run `a\x1b[2J`"))

    assert text == "error: there is no run `a\\x1b[2J`"


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (StoreError("no store"), "no store"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (RecursionError("deep"), "RecursionError: deep"),
    ],
)
def test_an_attempt_that_fails_is_told_and_goes_no_further(failure: Exception, says: str) -> None:
    notes, results = list[str](), list[int]()
    with attempt(notes.append):
        raise failure
    assert says in notes[0]
    with attempt(notes.append):
        results.append(3)
    assert (len(notes), results) == (1, [3])


@pytest.mark.parametrize("failure", [OSError(28, "full"), ValueError("closed")])
def test_a_stderr_that_fails_is_not_used_again(
    failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def write(self, _: str) -> int:
            raise failure

    monkeypatch.setattr(sys, "stderr", Broken())
    output.say("hello")
    assert sys.stderr is None
    output.say("hello again")


def test_a_reader_that_leaves_early_is_no_failure_of_ours(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def leave(_: object) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(lists, "execute", leave)
    stdout = os.dup(1)
    assert main.main(["list"]) == 141
    os.dup2(stdout, 1)
    os.close(stdout)
    assert capfd.readouterr().err == ""


def test_a_reader_that_leaves_a_report_early_is_told_by_the_same_code(tmp_path: Path) -> None:
    make_run(tmp_path)
    for words in (["show", "last"], ["list"], ["levers", "--json"], ["levers"]):
        read, write = os.pipe()
        os.close(read)
        command = [sys.executable, "-m", "steptime", *words]
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, env=BUFFERED)
        os.close(write)
        assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("words", [["--help"], ["list"], ["levers", "--json"]])
def test_a_full_stdout_is_a_failure_in_one_line(words: list[str], tmp_path: Path) -> None:
    make_run(tmp_path)
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "steptime", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=BUFFERED, text=True)
    assert done.stderr == "error: this failed: [Errno 28] No space left on device\n"
    assert done.returncode == 1


def test_a_report_that_nobody_reads_raises_and_ends_no_process() -> None:
    read, write = os.pipe()
    os.close(read)
    with open(write, "w", buffering=1) as unread:
        console = output.console_for(unread)
        with pytest.raises(BrokenPipeError):  # rich alone would exit with 1, in a `run`, too
            console.print("a report")
        os.dup2(os.open(os.devnull, os.O_WRONLY), write)


def test_a_trace_without_a_step_could_not_be_told(tmp_path: Path, capsys: Capture) -> None:
    run = make_run(tmp_path)
    head = {"k": "head", "schema": 1, "num_cores": 2}
    load = {"k": "h", "t_unix_s": NOON + 1, "dt_s": 1.0, "busy_cores": 2.0, "job_cores": 0.0}
    lines = "".join(json.dumps(line) + "\n" for line in (head, load))
    (run.folder / "host.jsonl").write_text(lines)
    assert main.main(["export", "last", "-o", "t.json", "--json"]) == 4
    document = json.loads(capsys.readouterr().out)
    assert (document["exit_code"], document["errors"][0]["code"]) == (4, "no_steps")


def test_the_table_of_exit_codes_has_the_code_of_every_error() -> None:
    told = set(re.findall(r"^  (\d+)  ", main._EXAMPLES, re.MULTILINE))
    kinds = [SteptimeError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    assert {str(kind.exit_code) for kind in kinds} <= told


@pytest.mark.parametrize("verb", ["run", "tune", "fit", "data bench"])
def test_a_command_that_is_not_there_ends_alike(verb: str, capsys: Capture) -> None:
    for name, code in (("no-such-command", 127), (os.getcwd(), 126)):
        check_failure(capsys, *verb.split(), "--", name, code=code, says=f"the command `{name}`")


def test_no_color_is_printed_where_the_user_wants_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert output.console_for(sys.stdout).color_system is not None
    monkeypatch.setenv("NO_COLOR", "1")
    assert output.console_for(sys.stdout).no_color


def test_quiet_verbose_and_no_color_are_understood_by_every_command(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    seen: list[bool] = []

    def tell(_: object) -> int:
        output.tell("something worth knowing")
        seen.append(output.console_for(sys.stdout).no_color)
        return 1 // 0

    monkeypatch.setattr(lists, "execute", tell)
    try:
        for words in ((), ("-q",), ("-v",), ("--no-color",)):
            assert main.main(["list", *words]) == 1
            err = capsys.readouterr().err
            assert ("something worth knowing" in err) == (words != ("-q",))
            assert ("Traceback" in err) == (words == ("-v",))
            assert "a failure of Steptime itself" in err
    finally:
        output.set_tone(is_quiet=False, is_colored=True, is_verbose=False)
    assert seen == [False, False, False, True]


# -- documents of failures


@pytest.mark.parametrize("words", [["show", "x", "--json"], ["list", "--json", "--store", "x"]])
def test_a_failure_is_one_document_on_stdout(words: list[str], capsys: Capture) -> None:
    assert main.main(words) == 2
    document = json.loads(capsys.readouterr().out)
    assert (document["command"], document["status"]) == (words[0], "error")
    assert (document["exit_code"], document["errors"][0]["code"]) == (2, "not_found")


@pytest.mark.parametrize("words", [["--json", "f"], ["--json=f"]])
def test_a_failure_is_one_document_in_the_named_file(
    words: list[str], tmp_path: Path, capsys: Capture
) -> None:
    assert main.main(["show", "x", *words]) == 2
    assert capsys.readouterr().out == ""
    assert json.loads((tmp_path / "f").read_text())["errors"][0]["code"] == "not_found"


def test_even_words_that_cannot_be_parsed_give_a_document(capsys: Capture) -> None:
    assert main.main(["show", "--json", "--bogus"]) == 2
    assert json.loads(capsys.readouterr().out)["errors"][0]["code"] == "usage"


def test_a_json_of_the_users_command_is_not_ours(capsys: Capture) -> None:
    check_failure(capsys, "run", "--store", "--", "x", "--json", code=2, says="needs a value")


def test_run_never_writes_to_stdout(capsys: Capture) -> None:
    check_failure(capsys, "run", "--json", code=2, says="--json needs a value")


def test_a_document_that_cannot_be_written_is_an_error() -> None:
    from steptime.report.document.envelope import Envelope, enclose

    empty: Envelope[None] = enclose("show", None)
    with pytest.raises(SteptimeError, match=r"--json: .*No such file"):
        output.write_json("no/such/file", empty)


# -- show and runs


def test_show_prints_the_report_on_stdout(tmp_path: Path, capsys: Capture) -> None:
    run = make_run(tmp_path)
    assert main.main(["show", "last"]) == 0
    out, err = capsys.readouterr()
    assert run.run_id in out
    assert err == ""


def test_show_writes_the_document_on_stdout(tmp_path: Path, capsys: Capture) -> None:
    run = make_run(tmp_path, exit_code=3)
    assert main.main(["show", run.run_id[:8], "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["command"], document["status"]) == ("show", "partial")
    assert document["data"]["measurement"]["end"]["exit_code"] == 3


def test_show_of_an_unknown_run_names_the_nearest(tmp_path: Path, capsys: Capture) -> None:
    run = make_run(tmp_path)
    wanted = run.run_id.replace("-", "")
    check_failure(capsys, "show", wanted, code=2, says=f"Nearest: {run.run_id}.")


def test_show_where_nothing_was_measured_says_how_to_begin(capsys: Capture) -> None:
    check_failure(capsys, "show", "last", code=2, says="steptime run -- python train.py")


def test_runs_kept_elsewhere_are_listed_with_a_word(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / ".steptime").write_text("a file in the way")
    run = make_run(tmp_path)
    assert main.main(["list"]) == 0
    out, err = capsys.readouterr()
    assert run.run_id in out
    why = f"{tmp_path}/.steptime cannot be written (a file has its name)"
    assert err == f"steptime: {why}; these runs are in {run.store}\n"


READERS = (
    *(("show", "last"), ("list",), ("report", "last"), ("attach", "last")),
    *(("export", "last", "-o", "trace.json"), ("compare", "last", "--", "last~1")),
    *(("list", "studies"), ("show", "study"), ("doctor",)),
)


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_a_store_that_is_named_and_not_there_is_bad_input_for_every_reader(
    words: tuple[str, ...], tmp_path: Path, capsys: Capture
) -> None:
    make_run(tmp_path)
    put = words.index("--") if "--" in words else len(words)
    given = [*words[:put], "--store", str(tmp_path / "missing"), *words[put:]]
    assert main.main(given) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: there is no folder `{tmp_path}/missing`")
    assert "Name the folder that holds .steptime." in err.splitlines()[1]
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize(
    "words", [("run", "--", "true"), ("tune", "--", "true"), ("machine", "--inventory")]
)
def test_a_file_as_the_store_is_refused_before_anything_starts(
    words: tuple[str, ...], tmp_path: Path, capsys: Capture
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert main.main([words[0], "--store", str(file), *words[1:]]) == 2
    assert f"--store: `{file}` is not a folder." in capsys.readouterr().err


def test_what_was_saved_is_shown_and_folded_anew_where_it_is_damaged(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    folded = load_run(run)
    save(folded)
    (run.folder / "command.json").write_text("{}")
    assert load_run(run) == replace(folded, series=None)
    (run.folder / "measurement.json").write_text('{"schema": 1, "run')
    with pytest.raises(SteptimeError, match=r"command\.json"):
        load_run(run)


def test_a_run_from_before_the_newer_lines_is_shown(tmp_path: Path, capsys: Capture) -> None:
    run = make_run(tmp_path)
    old = {"counts": ["batches", "copies", "syncs", "forwards", "backwards"]}
    rows = [make_row(n, x=[1, 0, 0, 1, 1]) for n in range(30)]
    lines = [make_head(**old), {"k": "u", "rows": rows}, make_end(30)]
    (run.folder / "rank-0.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    folded = load_run(run)
    save(folded)
    saved = json.loads((run.folder / "measurement.json").read_text())
    for name in ("prepare_fraction", "sites", "operators", "compilation", "switches", "errors"):
        del saved[name]
    for name in ("host_memory", "device_memory", "gc"):
        del saved["ranks"][0][name]
    (run.folder / "measurement.json").write_text(json.dumps(saved))

    assert load_run(run) == replace(folded, series=None)
    assert folded.measurement.num_steps == 30
    assert main.main(["show", "last"]) == 0
    assert "30; 29 counted" in capsys.readouterr().out


def test_runs_lists_with_the_whole_command_in_a_pipe(tmp_path: Path, capsys: Capture) -> None:
    command = ("python", "train.py", "--name", "x" * 200)
    run = make_run(tmp_path, argv=command)
    assert main.main(["list"]) == 0
    heading, line, *_ = capsys.readouterr().out.splitlines()
    assert heading.split() == ["run", "end", "diagnosis", "steps", "step", "time", "command"]
    assert line.startswith(f"{run.run_id}  finished")
    assert line.endswith("x" * 200)


def test_runs_cuts_the_command_on_a_terminal(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path, argv=("python", "x" * 200))
    terminal = Console(width=80, force_terminal=True, color_system=None, highlight=False)
    monkeypatch.setattr(output, "console_for", lambda _: terminal)
    assert main.main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) == 80
    assert lines[1].endswith("…")


def test_runs_writes_the_document(tmp_path: Path, capsys: Capture) -> None:
    run = make_run(tmp_path)
    assert main.main(["list", "--reindex", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["status"] == "ok"
    assert [row["run_id"] for row in document["data"]["runs"]] == [run.run_id]


# -- the end of a run


def make_options(**fields: str | None) -> argparse.Namespace:
    values = {"report": None, "json": None, "count": False}
    return argparse.Namespace(**values | fields)


@pytest.mark.parametrize(
    ("exit_code", "says"),
    [
        (0, "the command finished without a step; nothing to measure."),
        (1, "the command failed with exit code 1 before its first step; nothing to measure."),
    ],
)
def test_a_run_without_steps_is_one_line(
    exit_code: int, says: str, tmp_path: Path, capsys: Capture
) -> None:
    result = load_run(make_run(tmp_path, exit_code=exit_code))
    run._report(make_options(), result)
    err = capsys.readouterr().err
    assert err.startswith(f"steptime: {says} Run {result.measurement.run_id}.")
    assert err.count("\n") == 1


def test_notes_are_said_when_nothing_was_kept(tmp_path: Path, capsys: Capture) -> None:
    options = make_options(json=str(tmp_path / "f"))
    plan = RunPlan(command=("x",), argv=("x",), environment={}, notes=("no place to write",))
    end = ProcessEnd(state=RunState.FAILED, exit_code=3)
    run._conclude(options, EndedRun(plan=plan, end=end, notes=plan.notes), 3)
    assert capsys.readouterr().err.splitlines() == [
        "steptime: no place to write",
        "steptime: the command ran unobserved.",
    ]
    document = json.loads((tmp_path / "f").read_text())
    assert (document["status"], document["exit_code"]) == ("error", 3)
    assert "no place to write" in document["errors"][0]["message"]


def test_a_stderr_that_is_closed_costs_the_report_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = load_run(make_run(tmp_path))
    monkeypatch.setattr(sys, "stderr", None)
    run._report(make_options(), result)


@pytest.fixture
def without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    there = os.path.exists
    monkeypatch.setattr(os.path, "exists", lambda path: path != "/proc/self/stat" and there(path))
    monkeypatch.setattr("sys.platform", "linux")


@pytest.mark.usefixtures("without_proc")
def test_without_proc_a_command_says_so(capsys: Capture) -> None:
    check_failure(capsys, "list", code=1, says="/proc is not mounted here")


@pytest.mark.usefixtures("without_proc")
def test_without_proc_a_run_has_no_folder_and_says_why(tmp_path: Path) -> None:
    plan = prepare.prepare(RunOptions(command=("true",), store=tmp_path), os.environ, tell=print)
    assert plan.run is None
    assert "/proc is not mounted here" in plan.notes[0]
    assert not (tmp_path / ".steptime").exists()


def test_the_help_of_a_second_side_ends_well(capsys: Capture) -> None:
    assert main.main(["compare", "=", "--", "--help"]) == 0
    assert "usage: steptime compare" in capsys.readouterr().out
