"""The peaks that a user gives, on the command line and from Python."""

import os
from pathlib import Path

import pytest

import steptime
from steptime.app.run.prepare import RunOptions, prepare
from steptime.cli.main import main
from steptime.core.devices.given_peaks import check_peaks, parse_peaks
from steptime.core.store import read_value
from steptime.errors import UsageError
from steptime.launch.values import CommandRecord


def test_peaks_are_teraflops_by_type() -> None:
    assert parse_peaks(["bf16=312", "fp32 = 0.045"]) == {"bf16": 312e12, "fp32": 0.045e12}
    assert check_peaks({"tf32": 156}) == {"tf32": 156e12}
    assert parse_peaks([]) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("bf16", "must be TYPE=TFLOPS, got `bf16`"),
        ("312", "must be TYPE=TFLOPS"),
        ("", "must be TYPE=TFLOPS"),
        ("half=312", "one of fp64, fp32, tf32, fp16, bf16, fp8, got `half`"),
        ("bf16=fast", "got `fast`"),
        ("bf16=", "got ``"),
        ("bf16=0", "from 0.001 to 100,000"),
        ("bf16=-3", "got `-3`"),
        ("bf16=nan", "got `nan`"),
        ("bf16=inf", "got `inf`"),
        ("bf16=312e12", "got `312e12`"),
    ],
)
def test_what_is_no_peak_is_refused_in_one_sentence(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_peaks([text])

    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "--peak bf16=312" in (caught.value.hint or "")
    assert caught.value.exit_code == 2


def test_a_type_is_given_once() -> None:
    with pytest.raises(UsageError, match="bf16 twice"):
        parse_peaks(["bf16=312", "bf16=156"])


def test_a_wrong_peak_starts_nothing_and_exits_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main(["run", "--peak", "bf16=312e12", "--", "touch", "started"]) == 2

    said = capsys.readouterr().err
    assert "--peak bf16 must be a number of TFLOPS" in said
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())


def test_python_gives_a_mapping_and_gets_the_same_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="peak: the type must be one of"):
        steptime.observe(["true"], store=tmp_path, peak={"half": 312})
    with pytest.raises(UsageError, match=r"from 0\.001"):
        steptime.observe(["true"], store=tmp_path, peak={"bf16": 312e12})

    assert not list(tmp_path.iterdir())


def test_the_peaks_are_stored_with_the_run(tmp_path: Path) -> None:
    options = RunOptions(command=("true",), store=tmp_path, peaks={"bf16": 312e12})

    plan = prepare(options, os.environ, tell=lambda _: None)

    assert plan.run is not None
    assert read_value(plan.run, "command.json", CommandRecord).peaks == {"bf16": 312e12}
