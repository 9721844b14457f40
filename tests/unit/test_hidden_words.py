"""What looks like a secret in a command is not kept; everything else is, as it was given."""

import runpy
import sys
import time
from pathlib import Path

import pytest

from steptime.app.run.command_words import need_all_words
from steptime.errors import UsageError
from steptime.launch.origin import describe_run
from steptime.record.hidden_words import hide_words
from steptime.record.live.begun import read_begun

HF = "hf_" + "a1B2" * 8


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["--api-key", "abc123"], ["--api-key", "***"]),
        (["--wandb_api_key=abc123"], ["--wandb_api_key=***"]),
        (["WANDB_API_KEY=abc123", "wandb.key=abc"], ["WANDB_API_KEY=***", "wandb.key=***"]),
        (["hf.token=abc", "-token", "x"], ["hf.token=***", "-token", "***"]),
        (["--password", "p=w", "--seed", "1"], ["--password", "***", "--seed", "1"]),
        (["--login", HF], ["--login", "***"]),
        ([f"--env=X:{HF},y"], ["--env=X:***,y"]),
        (["s3://me:secret/x@host/a"], ["s3://me:***@host/a"]),
        (["postgres://me:pw@host/a"], ["postgres://me:***@host/a"]),
    ],
)
def test_a_secret_is_hidden(given: list[str], kept: list[str]) -> None:
    assert hide_words(["python", "t.py", *given]) == ("python", "t.py", *kept)


@pytest.mark.parametrize(
    "given",
    [
        ["--tokenizer", "gpt2", "--num-tokens", "512", "--max_tokens=512", "--pad-token", "0"],
        ["--token", "--verbose"],
        ["--key-dim", "64", "key=value", "--monkey", "x", "--keys", "a"],
        ["--auth-token=none", "https://host/a@b", "user@host:/data", "--lr=1e-3"],
    ],
)
def test_what_only_looks_a_little_like_one_stays(given: list[str]) -> None:
    assert hide_words(given) == tuple(given)


def test_the_record_of_a_run_has_no_secret_and_cannot_be_started_again() -> None:
    argv = ("python", "t.py", "--api-key", "abc123")
    record = describe_run("x", argv, environment={}, started_unix_s=time.time())
    assert record.argv == ("python", "t.py", "--api-key", "***")
    with pytest.raises(UsageError, match="secret among its words"):
        need_all_words(record.argv)
    assert need_all_words(argv) == argv


@pytest.mark.parametrize("words", [["python", "t.py", "--token", "abc"], ["python", "t.py", "7"]])
def test_a_process_announces_itself_without_it(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import steptime

    folder = Path(steptime.__file__).parent
    monkeypatch.setattr(sys, "path", list(sys.path))
    names = runpy.run_path(str(folder / "inject" / "site" / "sitecustomize.py"), run_name="tried")
    monkeypatch.setenv("STEPTIME_GUEST", str(folder / "guest"))
    monkeypatch.setattr(sys, "orig_argv", words)
    names["_announce"](str(tmp_path), "start")
    *_, begun = read_begun(tmp_path / "processes.jsonl")
    assert begun.argv == hide_words(words)
