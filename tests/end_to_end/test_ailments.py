"""Each planted ailment is diagnosed as itself, with its cause and line, and not as its neighbor.

Once each; `benchmarks/ailments.py` does the same twenty times.
"""

from __future__ import annotations

import pytest

from end_to_end.ailments import AILMENTS, judge
from end_to_end.conftest import RunSpecimen
from end_to_end.harness import has_gpu

pytestmark = pytest.mark.slow("a process of its own, and as many steps as a diagnosis needs")

CORE = ("slow fetch", "out of memory", "healthy")
"""In the fast check, too: one of a phase, one that dies, one with nothing."""


def marks(name: str) -> list[pytest.MarkDecorator]:
    """What the ailment needs."""
    found = [pytest.mark.core] if name in CORE else []
    if AILMENTS[name].cause == "neighbor":
        found.append(pytest.mark.serial)
    if AILMENTS[name].needs_gpu:
        found += [pytest.mark.gpu, pytest.mark.skipif(not has_gpu(), reason="no CUDA device")]
    return found


@pytest.fixture(params=[pytest.param(name, marks=marks(name)) for name in AILMENTS])
def name(request: pytest.FixtureRequest) -> str:
    """Every ailment; those of a GPU where there is one."""
    return request.param


def test_an_ailment_is_diagnosed_as_itself(run_specimen: RunSpecimen, name: str) -> None:
    ailment = AILMENTS[name]
    run = run_specimen(
        ailment.specimen,
        *ailment.args,
        nproc=ailment.nproc,
        exit_code=ailment.exit_code,
        is_forked=False,  # a fork has page faults of its own
    )

    judgement = judge(ailment, run.data["diagnosis"])

    assert judgement.is_right, run.data["diagnosis"]
    assert judgement.is_line_right in (True, None), judgement.found
