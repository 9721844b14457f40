"""Makes whole quality runs of a script, as a study does, without its containment."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from end_to_end.forked import ForkedJob
from end_to_end.harness import LIMIT_S, SPECIMENS, environment
from steptime.guest.trial.trial_plan import load_file
from steptime.launch.user_command import observed_environment
from steptime.levers import file_of, load
from steptime.verify.judge_quality import judge, needs_draws
from steptime.verify.protocol import MORE_REPEATS, VARIABLES, RunRequest, gather, plan_runs
from steptime.verify.recordings import Recording, read_recording
from steptime.verify.values import Verdict


@dataclass(frozen=True, kw_only=True)
class Put:
    """A lever to put on: its name, settings, and file."""

    name: str
    file: Path
    settings: Mapping[str, Any]
    preserves: str = "NUMERIC"
    roundoff: float = 2.0**-24
    reorders: bool = False


def shipped(name: str, *, roundoff: float = 2.0**-24, **settings: Any) -> Put:
    """One of Steptime's own levers."""
    return Put(
        name=name,
        file=Path(file_of(load(name))),
        settings=settings,
        roundoff=roundoff,
        reorders=load(name).reorders,
    )


def wrong(name: str) -> Put:
    """One of the planted levers of the specimens."""
    file = SPECIMENS / "wrong_levers" / f"{name}.py"
    lever = load_file(str(file)).LEVER
    return Put(name=name, file=file, settings={}, roundoff=lever.roundoff({}))


@dataclass(frozen=True, kw_only=True)
class Script:
    """A specimen with its arguments, `nproc` ranks of it where that is said."""

    name: str
    args: tuple[str, ...] = ()
    nproc: int | None = None

    @property
    def path(self) -> str:
        return str(SPECIMENS / f"{self.name}.py")

    @property
    def command(self) -> list[str]:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.nproc}"]
        return [sys.executable, *(launcher if self.nproc else ()), self.path, *self.args]

    def rendezvous(self) -> dict[str, str]:
        """What torchrun would tell the ranks."""
        if self.nproc is None:
            return {}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        world = str(self.nproc)
        return {"WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def run_forked(script: Script, folder: Path, variables: Mapping[str, str]) -> None:
    """Run a script to its end, which must be a good one, each rank as a fork."""
    words = ["python", script.path, *script.args]
    environment = {**variables, **script.rendezvous()}
    ranks = [
        {**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)} if script.nproc else environment
        for rank in range(script.nproc or 1)
    ]
    jobs = [ForkedJob(words, own, folder, is_observed=False) for own in ranks]
    for rank, job in enumerate(jobs):
        code, out, err = job.communicate(LIMIT_S)
        (folder / f"output-{rank}").write_bytes(out + err)
        assert code == 0, err.decode()[-2000:]


def record(
    folder: Path,
    script: Script,
    quality: Mapping[str, Any],
    put: Sequence[Put] = (),
    *,
    is_forked: bool = False,
) -> Recording:
    """One whole run; it must end well. If it is not forked, it is started as a study starts it."""
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
    variables = observed_environment(environment(folder), folder) | VARIABLES
    variables["STEPTIME_PLAN"] = str(folder / "plan.json")
    if is_forked:
        run_forked(script, folder, variables)
        return read_recording(folder)
    done = subprocess.run(
        script.command,
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return read_recording(folder)


class Baselines:
    """The runs of one script without levers, each made once."""

    def __init__(
        self,
        folder: Path,
        script: Script,
        *,
        num_updates: int = 20,
        num_repeats: int = 2,
        seed: int | None = None,
        is_forked: bool = False,
    ) -> None:
        self.folder = folder
        self.script = script
        self.num_updates = num_updates
        self.num_repeats = num_repeats
        self.seed = seed
        self.is_forked = is_forked
        self.recordings: dict[str, Recording] = {}
        self.num_candidates = 0

    def judge(self, *put: Put, preserves: str | None = None, stop_early: bool = True) -> Verdict:
        """A candidate with these levers, judged as its class demands."""
        roundoff = max((one.roundoff for one in put), default=2.0**-24)
        preserves = preserves or (put[0].preserves if put else "EXACT")
        reorders = any(one.reorders for one in put)
        self.num_candidates += 1
        candidate, verdict = None, None
        for num_repeats in (self.num_repeats, *MORE_REPEATS):
            requests = plan_runs(
                preserves,
                roundoff=roundoff,
                num_updates=self.num_updates,
                num_repeats=num_repeats,
                reorders=reorders,
            )
            for request in requests:
                if request.is_candidate and candidate is None:
                    candidate = self._record(f"candidate-{self.num_candidates}", request, put)
                elif not request.is_candidate and request.name not in self.recordings:
                    self.recordings[request.name] = self._record(request.name, request, ())
                if not request.is_candidate and request is not requests[-1]:
                    continue  # a study would ask after each run; here all of them are quick
                reference = gather(
                    self.recordings,
                    roundoff=roundoff,
                    num_repeats=num_repeats,
                    reorders=reorders,
                )
                if candidate is not None and reference is not None:
                    verdict = judge(reference, candidate, preserves=preserves)
                    if stop_early and verdict.outcome.value == "FAIL":
                        return verdict
            assert verdict is not None
            if not needs_draws(verdict):
                break
        assert verdict is not None
        return verdict

    def _record(self, name: str, request: RunRequest, put: Sequence[Put]) -> Recording:
        quality = dict(request.quality)
        if self.seed is not None:
            quality["seed"] = self.seed
        return record(self.folder / name, self.script, quality, put, is_forked=self.is_forked)
