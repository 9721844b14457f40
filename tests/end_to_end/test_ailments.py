"""Each planted ailment is diagnosed as itself, with its cause and line, and not as its neighbor.

From the run folders that are kept, all of them; truly run, three in the fast check, and each of
them in `--all`, which also compares what is found with what is found in the folder that is kept.
`benchmarks/ailments.py` runs each twenty times.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from end_to_end.ailments import AILMENTS, CONTENDED, NOISE, judge
from end_to_end.conftest import RunSpecimen
from end_to_end.harness import has_gpu
from run_folders import path_of, unpack
from steptime.app.load import load_run
from steptime.app.run_listing import run_at
from steptime.core.schema import SCHEMA

LIVE = ("slow fetch", "out of memory", "healthy")
"""Truly run in the fast check, too: one of a phase, one that dies, one with nothing."""

KEPT = [name for name, ailment in AILMENTS.items() if not ailment.needs_gpu]
AGAIN = "make it again: python scripts/gen_run_folders.py"
OF_THE_MACHINE = {CONTENDED, NOISE}


def diagnosis_of(folder: Path) -> Mapping[str, Any]:
    """What is found in a run's folder, as the document has it."""
    load_run(run_at(folder))  # it writes what it concludes
    diagnosis: dict[str, Any] = json.loads((folder / "diagnosis.json").read_bytes())
    return diagnosis


def serious(diagnosis: Mapping[str, Any]) -> set[tuple[str, str]]:
    """The findings at `warning` or above, less those of the machine, with the file of each."""
    found = [one for one in diagnosis["findings"] if one["severity"] != "info"]
    named = [(f"{one['kind']}/{one['cause']}", str(one["where"])) for one in found]
    return {(name, Path(where).name) for name, where in named if name not in OF_THE_MACHINE}


@pytest.mark.parametrize("name", KEPT)
def test_the_run_that_is_kept_is_diagnosed_as_its_ailment(tmp_path: Path, name: str) -> None:
    folder = unpack(name, tmp_path)
    for stream in folder.glob("rank-*.jsonl"):
        assert json.loads(stream.read_text().partition("\n")[0])["schema"] == SCHEMA, AGAIN

    judgement = judge(AILMENTS[name], diagnosis := diagnosis_of(folder))

    assert judgement.is_right, diagnosis
    assert judgement.is_line_right in (True, None), (judgement.found, AGAIN)


def test_nothing_is_kept_that_no_ailment_is_made_of() -> None:
    here = set(path_of("healthy").parent.iterdir())

    assert here == {path_of(name) for name in KEPT}
    assert sum(path.stat().st_size for path in here) < 512 << 10


def marks(name: str) -> list[pytest.MarkDecorator]:
    """What the ailment needs."""
    found = [pytest.mark.core] if name in LIVE else []
    if AILMENTS[name].cause == "neighbor":
        found.append(pytest.mark.serial)
    if AILMENTS[name].needs_gpu:
        found += [pytest.mark.gpu, pytest.mark.skipif(not has_gpu(), reason="no CUDA device")]
    return found


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in AILMENTS])
@pytest.mark.slow("a process of its own, and as many steps as a diagnosis needs")
def test_an_ailment_is_diagnosed_as_itself(
    run_specimen: RunSpecimen, tmp_path: Path, name: str
) -> None:
    ailment = AILMENTS[name]
    run = run_specimen(
        ailment.specimen,
        *ailment.args,
        nproc=ailment.nproc,
        exit_code=ailment.exit_code,
        is_forked=False,  # a fork has page faults of its own
    )

    judgement = judge(ailment, diagnosis := run.data["diagnosis"])

    assert judgement.is_right, diagnosis
    assert judgement.is_line_right in (True, None), judgement.found
    if name in KEPT:
        assert serious(diagnosis) == serious(diagnosis_of(unpack(name, tmp_path))), AGAIN
