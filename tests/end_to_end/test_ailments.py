"""Each planted ailment is diagnosed as itself, with its cause and line, and not as its neighbor.

Three in the fast check, each of them in `--all`; what is found is compared with what is found in
the run that is kept of it (`unit/test_kept_runs.py`). `benchmarks/run/ailments.py` runs each twenty
times.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from end_to_end.ailments import AILMENTS, CONTENDED, NOISE, judge
from end_to_end.conftest import RunSpecimen
from end_to_end.harness import has_gpu
from run_folders import AGAIN, KEPT_AILMENTS, diagnosis_of, unpack_run

LIVE = ("slow fetch", "out of memory", "healthy")
"""Truly run in the fast check, too: one of a phase, one that dies, one with nothing."""

OF_THE_MACHINE = {CONTENDED, NOISE}


def serious(diagnosis: Mapping[str, Any]) -> set[tuple[str, str]]:
    """The findings at `warning` or above, less those of the machine, with the file of each."""
    found = [one for one in diagnosis["findings"] if one["severity"] != "info"]
    named = [(f"{one['kind']}/{one['cause']}", str(one["where"])) for one in found]
    return {(name, Path(where).name) for name, where in named if name not in OF_THE_MACHINE}


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
    if name in KEPT_AILMENTS:
        assert serious(diagnosis) == serious(diagnosis_of(unpack_run(name, tmp_path))), AGAIN
