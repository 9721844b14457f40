"""Runs a specimen under `steptime run`, once a session."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import SPECIMENS, run_folder, run_forked, run_truly
from steptime.diagnose.diagnosis import diagnose
from steptime.diagnose.values.finding import Diagnosis
from steptime.measure.fold.rank_fold import select_ranks
from steptime.measure.fold.run_fold import measure
from steptime.measure.fold.run_records import read_records
from steptime.measure.values.measurement import Step

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job, as the tests may be, hands it on to every script they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:  # `nohup`, and background jobs again
        signal.signal(number, signal.SIG_DFL)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecimenRun:
    """What `steptime run --json` wrote, what the script printed, and the run's folder."""

    data: dict[str, Any]
    stdout: str
    folder: Path

    def steps(self, *, rank: int = 0) -> tuple[Step, ...]:
        """Every step of a rank, warmup included."""
        return select_ranks(read_records(self.folder))[rank].steps

    def diagnose_alone(self) -> Diagnosis:
        """The verdict on the same steps, had nobody else used the machine."""
        return diagnose(replace(measure(read_records(self.folder)), host=None))

    def median_s(self, phase: str, *, rank: int | None = None) -> float:
        """A phase's median time a step, of the run or of one rank; it must have been observed."""
        holder = self.data if rank is None else self.data["ranks"][rank]
        return float(holder["phases"][phase]["median_s"])

    def fraction(self, *phases: str) -> float:
        """The share of some phases together; one that was not observed counts as none."""
        found = [self.data["phases"][name] for name in phases]
        return sum(phase["fraction"] for phase in found if phase is not None)

    def findings(self, *kinds: str) -> list[dict[str, Any]]:
        """The findings of these kinds, of all kinds if none is named."""
        found = self.data["diagnosis"]["findings"]
        return [finding for finding in found if not kinds or finding["kind"] in kinds]


RunSpecimen = Callable[..., SpecimenRun]


@pytest.fixture(scope="session")
def run_specimen(tmp_path_factory: pytest.TempPathFactory) -> RunSpecimen:
    """Runs a specimen by its name, with arguments, on `nproc` ranks if that is said.

    `exit_code` is what the specimen ends with; `is_forked` says whether the script may be a
    fork of a process that has torch; what looks at its process from outside needs a true one.
    """
    if find_spec("torch") is None:
        pytest.skip("the specimens train, which needs torch")
    known: dict[tuple[Any, ...], SpecimenRun] = {}

    def run(
        name: str, *args: str, nproc: int | None = None, exit_code: int = 0, is_forked: bool = True
    ) -> SpecimenRun:
        key = (name, args, nproc, is_forked)
        if key not in known:
            folder = tmp_path_factory.mktemp(name)
            known[key] = _run(
                folder, name, *args, nproc=nproc, exit_code=exit_code, is_forked=is_forked
            )
        return known[key]

    return run


def _run(
    folder: Path, name: str, *args: str, nproc: int | None, exit_code: int, is_forked: bool
) -> SpecimenRun:
    launcher = () if nproc is None else ("-m", "torch.distributed.run", "--standalone")
    ranks = () if nproc is None else (f"--nproc-per-node={nproc}",)
    command = (sys.executable, *launcher, *ranks, SPECIMENS / f"{name}.py", *args)
    done = (run_forked if is_forked else run_truly)(folder, *command)
    said = done.stderr.decode()
    assert done.exit_code == exit_code, said
    assert done.document is not None, said
    assert done.document["status"] == ("partial" if exit_code else "ok"), said
    return SpecimenRun(data=done.data, stdout=done.stdout.decode(), folder=run_folder(folder))
