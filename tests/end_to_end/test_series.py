"""The series beside the steps, and the trace made of them, from real runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from end_to_end.harness import (
    SCRIPTS,
    SPECIMENS,
    has_gpu,
    needs_linux,
    needs_torch,
    rows,
    run_folder,
    run_forked,
)
from steptime.cli.main import main
from steptime.measure.series.run_series import read_series
from steptime.measure.values.over_time import RunSeries

pytestmark = [needs_torch, needs_linux]

Observe = Callable[..., Path]


@pytest.fixture(scope="module")
def observe(tmp_path_factory: pytest.TempPathFactory) -> Observe:
    """Runs a script with these arguments; its run folder. Once for all tests."""

    @cache
    def run(*command: str | Path) -> Path:
        folder = tmp_path_factory.mktemp("run")
        done = run_forked(folder, *command)
        assert done.exit_code == 0, done.stderr.decode()
        assert "guest_failures" not in done.notes
        return run_folder(folder)

    return run


def series_of(folder: Path) -> RunSeries:
    return read_series(folder, None)


def test_recompiles_and_breaks_have_their_time_and_step(observe: Observe) -> None:
    found = series_of(observe("python", SCRIPTS / "ailing.py", "compile_badly"))
    recompiles = [e for e in found.events if e.what == "recompile"]
    assert len(recompiles) == 3
    assert all(e.seconds is not None and e.seconds > 0 for e in recompiles)
    assert all("factor" in (e.text or "") for e in recompiles)
    steps = [e.step for e in recompiles]
    assert steps == sorted(set(steps), key=lambda step: step or 0)
    (broken,) = [e for e in found.events if e.what == "graph_break"]
    assert "ailing.py" in (broken.text or "")
    compiling = {e.step for e in found.events if e.what == "compile"}
    assert set(steps) <= compiling


def test_collections_lie_within_the_steps_they_are_told_of(observe: Observe) -> None:
    found = series_of(observe("python", SPECIMENS / "gc_pauses.py"))
    pauses = [e for e in found.events if e.what == "gc"]
    assert len(pauses) >= 5
    ends = {point.index: point.end_unix_s for point in found.steps}
    for pause in pauses:
        assert pause.seconds is not None
        assert pause.seconds >= 1e-3
        assert pause.step is not None
        assert pause.t_unix_s <= ends[pause.step]
        assert pause.step == 0 or pause.t_unix_s > ends[pause.step - 1]


def test_time_of_loader_workers_and_memory_are_seen_from_outside(observe: Observe) -> None:
    host = series_of(observe("python", SCRIPTS / "loading.py")).host
    # How many cores they got is up to the others on the machine; what they did took time.
    assert sum((p.worker_cores or 0.0) * p.dt_s for p in host) > 0.1
    # On a busy machine each look, a second apart and more, may fall between two epochs.
    alive = [size for p in host if (size := p.worker_resident_bytes)]
    assert not alive or max(alive) > 1 << 20
    inside = [p for p in host if p.job_resident_bytes is not None]
    assert inside
    assert max(p.job_resident_bytes or 0 for p in inside) > 64 << 20
    assert all(p.cached_bytes and p.received_bytes is not None for p in host)


@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(), reason="no CUDA device is here")
def test_the_device_that_trains_is_seen_from_outside(observe: Observe) -> None:
    found = series_of(observe("python", SPECIMENS / "gpu_sync.py"))
    assert found.devices
    assert max(p.used_bytes or 0 for p in found.devices) > 64 << 20
    assert max(p.power_w or 0.0 for p in found.devices) > 10
    assert {p.device[:4] for p in found.devices} == {"GPU-"}


@pytest.mark.slow("torchrun and two ranks import torch")
def test_the_trace_of_two_ranks_has_a_process_each(observe: Observe, tmp_path: Path) -> None:
    launcher = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2")
    folder = observe(*launcher, "--standalone", SPECIMENS / "ddp.py")
    assert len(list(folder.glob("rank-*.jsonl"))) == 2
    store, path = str(folder.parent.parent.parent), tmp_path / "trace.json"
    assert main(["export", "last", "--store", store, "-o", str(path)]) == 0
    events = json.loads(path.read_text())["traceEvents"]
    names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert {"rank 0", "rank 1", "machine"} <= set(names)
    for pid in (1000, 1001):
        mine = [e for e in events if e["ph"] == "X" and e["pid"] == pid]
        drawn = {e["name"] for e in mine}
        assert {"step 5", "forward", "backward", "optimizer"} <= drawn
        # Phases lie within the trace of their steps: both come from one clock.
        steps = [e for e in mine if e["name"].startswith("step ")]
        begin, end = steps[1]["ts"], steps[-1]["ts"] + steps[-1]["dur"]
        backwards = [e for e in mine if e["name"] == "backward"]
        assert all(e["ts"] + e["dur"] <= end + 1 for e in backwards[:-1])
        assert sum(begin <= e["ts"] <= end for e in backwards) >= len(steps) - 2


def test_a_run_that_goes_on_can_be_read(observe: Observe) -> None:
    folder = observe("python", SPECIMENS / "gc_pauses.py")
    lines = (folder / "rank-0.jsonl").read_text()
    command = json.loads((folder / "command.json").read_text())
    running = folder.parent / "running"
    running.mkdir()
    (running / "command.json").write_text(json.dumps({**command, "exit_code": None}))
    (running / "rank-0.jsonl").write_text(lines[: len(lines) // 2])
    found = series_of(running)
    assert 0 < len(found.steps) < len(series_of(folder).steps)
    assert rows(running / "rank-0.jsonl")
