"""Makes whole quality runs of a script, as a study does, without its containment."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from end_to_end.harness import LIMIT_S, SPECIMENS, environment
from steptime import levers
from steptime.core.study import Verdict
from steptime.measure.launch import observed_environment
from steptime.verify.compare import judge
from steptime.verify.protocol import VARIABLES, gather, plan_runs
from steptime.verify.records import Recording, read_recording

LEVERS = Path(levers.__file__).parent


@dataclass(frozen=True, kw_only=True)
class Put:
    """A lever to put on: its name, settings, and file."""

    name: str
    file: Path
    settings: Mapping[str, Any]
    preserves: str = "NUMERIC"
    roundoff: float = 2.0**-24


def shipped(name: str, *, roundoff: float = 2.0**-24, **settings: Any) -> Put:
    """One of Steptime's own levers."""
    return Put(name=name, file=LEVERS / f"{name}.py", settings=settings, roundoff=roundoff)


@dataclass(frozen=True, kw_only=True)
class Script:
    """A specimen with its arguments, `nproc` ranks of it where that is said."""

    name: str
    args: tuple[str, ...] = ()
    nproc: int | None = None

    @property
    def command(self) -> list[str]:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.nproc}"]
        path = str(SPECIMENS / f"{self.name}.py")
        return [sys.executable, *(launcher if self.nproc else ()), path, *self.args]


def record(
    folder: Path, script: Script, quality: Mapping[str, Any], put: Sequence[Put] = ()
) -> Recording:
    """One whole run; it must end well."""
    folder.mkdir(parents=True)
    plan = {
        "schema": 1,
        "mode": "trial",
        "levers": [
            {"name": one.name, "settings": dict(one.settings), "file": str(one.file)} for one in put
        ],
        "is_live": False,
        "quality": dict(quality),
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    variables = {**VARIABLES, "STEPTIME_PLAN": str(folder / "plan.json")}
    done = subprocess.run(
        script.command,
        cwd=folder,
        env=observed_environment(environment(folder), folder) | variables,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return read_recording(folder)


class Baselines:
    """The runs of one script without levers, each made once."""

    def __init__(self, folder: Path, script: Script, *, num_updates: int, num_repeats: int) -> None:
        self.folder = folder
        self.script = script
        self.num_updates = num_updates
        self.num_repeats = num_repeats
        self.recordings: dict[str, Recording] = {}
        self.num_candidates = 0

    def judge(self, *put: Put, preserves: str | None = None, stop_early: bool = True) -> Verdict:
        """A candidate with these levers, judged as its class demands."""
        roundoff = max((one.roundoff for one in put), default=2.0**-24)
        preserves = preserves or (put[0].preserves if put else "EXACT")
        requests = plan_runs(
            preserves,
            roundoff=roundoff,
            num_updates=self.num_updates,
            num_repeats=self.num_repeats,
        )
        self.num_candidates += 1
        candidate, verdict = None, None
        for request in requests:
            if request.is_candidate:
                folder = self.folder / f"candidate-{self.num_candidates}"
                candidate = record(folder, self.script, request.quality, put)
            elif request.name not in self.recordings:
                folder = self.folder / request.name
                found = record(folder, self.script, request.quality)
                self.recordings[request.name] = found
            reference = gather(self.recordings, roundoff=roundoff, num_repeats=self.num_repeats)
            if candidate is not None and reference is not None:
                verdict = judge(reference, candidate, preserves=preserves)
                if stop_early and verdict.outcome.value == "FAIL":
                    break
        assert verdict is not None
        return verdict
