"""What a Python program calls, with real processes: it keeps its signals, streams and threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest

import steptime
from steptime.errors import NotStartedError, StoreError, UsageError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes as on Linux")

LIMIT_S = 60
TRAIN = """
    import torch

    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(40):
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    print("trained")
    raise SystemExit(3)
"""
WAITS = "import time; print('ready', flush=True); time.sleep(600)"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.core
@pytest.mark.slow("trains, and imports torch for it")
@pytest.mark.skipif(find_spec("torch") is None, reason="the script trains, which needs torch")
def test_a_training_is_observed_loaded_and_compared(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(textwrap.dedent(TRAIN))

    run = steptime.observe([sys.executable, "train.py"], output="capture")

    assert (run.exit_code, run.measurement.num_steps) == (3, 40)
    assert run.output is not None
    assert "trained" in run.output
    assert run.run_id in str(run)
    assert "40" in repr(run)
    assert run._repr_html_().startswith("<pre>diagnosis  failed: ")
    again = steptime.load("last")
    assert (again.measurement, again.diagnosis) == (run.measurement, run.diagnosis)
    assert steptime.load(run.folder).run_id == run.run_id
    comparison = steptime.compare(run, [run.run_id])
    assert comparison.outcome.value == "not_comparable"
    assert "named more than once" in str(comparison)


def test_a_command_without_torch_is_no_error_and_says_so() -> None:
    run = steptime.observe(["sh", "-c", "exit 7"])

    assert run.exit_code == 7
    assert run.is_empty
    assert str(run).startswith("steptime: the command failed with exit code 7")


def test_a_string_is_split_and_never_read_by_a_shell(tmp_path: Path) -> None:
    run = steptime.observe("sh -c 'echo \"$0\" $HOME' '$HOME;x'", output=tmp_path / "out")

    assert run.measurement.command[-1] == "$HOME;x"
    assert (tmp_path / "out").read_text().startswith("$HOME;x ")


def test_it_works_in_a_thread() -> None:
    found = list[steptime.ObservedRun]()
    thread = threading.Thread(target=lambda: found.append(steptime.observe(["true"])))
    thread.start()
    thread.join(LIMIT_S)

    assert [run.exit_code for run in found] == [0]


def test_the_signals_and_streams_of_the_program_stay_as_they_are() -> None:
    numbers = (signal.SIGINT, signal.SIGCHLD, signal.SIGTERM)

    def state() -> tuple[object, ...]:
        streams = tuple(os.readlink(f"/proc/self/fd/{number}") for number in range(3))
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        return tuple(map(signal.getsignal, numbers)), mask, streams

    before = state()
    steptime.observe(["true"])

    assert state() == before


def test_the_output_goes_where_that_of_the_program_goes(tmp_path: Path) -> None:
    code = "import steptime; steptime.observe(['sh', '-c', 'echo out; cat']); print(input())"

    done = subprocess.run(
        [sys.executable, "-c", code], input=b"", capture_output=True, timeout=LIMIT_S, cwd=tmp_path
    )

    assert done.stdout.decode().splitlines() == ["out"]
    assert b"EOFError" in done.stderr, "the command reads the same standard input"


@pytest.mark.parametrize(
    "ignores",
    [False, pytest.param(True, marks=pytest.mark.slow("the command gets 13 s to end by itself"))],
)
def test_ctrl_c_ends_the_command_and_is_raised(tmp_path: Path, *, ignores: bool) -> None:
    stubborn = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); " if ignores else ""
    code = f"""
        import sys, steptime
        try:
            steptime.observe([sys.executable, "-c", {stubborn + WAITS!r}])
        except KeyboardInterrupt:
            run = steptime.load("last")
            print("interrupted", run.measurement.end.state.value, run.exit_code)
    """
    program = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == b"ready\n"
    # As a terminal and a notebook do: to the whole group, the command among it.
    os.killpg(program.pid, signal.SIGINT)
    out, _ = program.communicate(timeout=2 * LIMIT_S)

    assert program.returncode == 0
    end = "killed 143" if ignores else "killed 130"
    assert out.decode() == f"interrupted {end}\n"


def test_what_cannot_be_started_is_one_error() -> None:
    with pytest.raises(NotStartedError, match="`nope`") as caught:
        steptime.observe(["nope"])

    assert caught.value.exit_code == 127
    assert isinstance(caught.value, steptime.SteptimeError)


def test_output_that_cannot_be_written_is_an_error_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="output: "):
        steptime.observe(["touch", "started"], output="no/such/folder/file")

    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(("command", "says"), [([], "no command"), ("sh '", "split into words")])
def test_a_command_that_makes_no_sense_is_refused(command: list[str] | str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        steptime.observe(command)
