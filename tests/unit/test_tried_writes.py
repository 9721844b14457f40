"""What the script tried to write over a study: its own doing, not the levers'."""

from __future__ import annotations

import json
from pathlib import Path

from steptime.tune.trials.facts.tried_writes import read_levers, scripts_own_writes, write_levers


def trial(folder: Path, *paths: str, levers: tuple[str, ...] | None = ()) -> Path:
    folder.mkdir()
    (folder / "writes.json").write_text(json.dumps({"schema": 1, "num": 1, "paths": paths}))
    if levers is not None:
        write_levers(folder, levers)
    return folder


def test_what_a_trial_as_written_wrote_is_the_scripts(tmp_path: Path) -> None:
    folders = [trial(tmp_path / "0", "/b", "/a"), trial(tmp_path / "1", "/b")]

    assert scripts_own_writes(folders) == ("/a", "/b")


def test_what_was_written_only_while_a_lever_was_on_may_be_the_levers(tmp_path: Path) -> None:
    folders = [
        trial(tmp_path / "0", "/tmp/pymp-1/", "/late", levers=("dataloader",)),
        trial(tmp_path / "1", "/cache/code.so", "/late", levers=("autocast", "compile")),
        trial(tmp_path / "2", "/cache/code.so", levers=("compile",)),
    ]

    assert scripts_own_writes(folders) == ("/late",)


def test_a_trial_whose_levers_nobody_knows_says_nothing(tmp_path: Path) -> None:
    folders = [trial(tmp_path / "0", "/a", levers=None)]
    (tmp_path / "levers.json").write_text("[]")

    assert scripts_own_writes(folders) == ()
    assert read_levers(tmp_path) is None
