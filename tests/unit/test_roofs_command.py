"""Which measured ceilings a run is judged by: its own, else those of its machine and its torch."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from steptime.app.stored.kept_ceilings import find_ceilings
from steptime.core.codec import to_json
from steptime.core.devices.machine_identity import MachineIdentity
from steptime.core.store import Run, create_run, write_value
from steptime.launch.origin import read_machine
from steptime.launch.values import CommandRecord
from steptime.machine.ceiling_state import judge
from steptime.machine.ceilings import Python, fingerprint_of
from steptime.machine.inventory import read_inventory
from steptime.machine.values.ceiling_values import Ceilings
from steptime.measure.values.measurement import Measurement
from steptime.watch.host.device_sampler import load_nvml
from unit.test_waterfall import make_ceilings, make_count, make_group, make_run

MEASURED = make_run(make_count(make_group(time_s=0.1)), {"forward": 0.1})


def keep_run(folder: Path, *, machine: MachineIdentity | None = None) -> Run:
    """A run in a store of its own, made on this machine unless another one is named."""
    run = create_run(folder, started_unix_s=1_790_000_000.0)
    record = CommandRecord(
        run_id=run.run_id,
        argv=("python", "train.py"),
        cwd=str(folder),
        environment_names=(),
        started_unix_s=1_790_000_000.0,
        steptime_version="0",
        python_version="3.11.7",
        git_revision=None,
        machine=machine or read_machine(),
        parent_pid=1,
    )
    write_value(run, "command.json", record)
    return run


def ceilings_of_here(*, torch_version: str = "2.13.0") -> Ceilings:
    """As `steptime machine` would keep them for the interpreter of the made-up bench."""
    found = make_ceilings()
    assert found.bench is not None
    bench = replace(found.bench, torch_version=torch_version)
    inventory = read_inventory(Path.cwd(), load_nvml=load_nvml, environment=os.environ)
    python = Python(path=bench.python, version=bench.python_version, torch_version=torch_version)
    fingerprint = fingerprint_of(read_machine(), inventory, python)
    return judge(replace(found, bench=bench, fingerprint=fingerprint))


def keep_ceilings(run: Run, ceilings: Ceilings) -> None:
    folder = run.store / "machine"
    folder.mkdir(exist_ok=True)
    path = folder / f"{ceilings.fingerprint}.json"
    path.write_text(json.dumps(to_json(ceilings)))


def find(run: Run, measured: Measurement = MEASURED) -> Ceilings | None:
    return find_ceilings(run, measured)


def test_what_was_measured_on_this_machine_with_the_torch_of_the_run_is_found(
    tmp_path: Path,
) -> None:
    run = keep_run(tmp_path)
    assert find(run) is None
    keep_ceilings(run, ceilings_of_here())
    assert find(run) == ceilings_of_here()
    keep_ceilings(run, ceilings_of_here(torch_version="2.12.0"))
    assert find(run) == ceilings_of_here()


def test_the_newest_of_a_runs_own_ceilings_and_its_machines_counts(tmp_path: Path) -> None:
    run = keep_run(tmp_path)
    here = ceilings_of_here()
    keep_ceilings(run, here)
    newer = replace(judge(make_ceilings()), measured_unix_s=here.measured_unix_s + 1)
    older = replace(newer, measured_unix_s=here.measured_unix_s - 1)
    write_value(run, "ceilings.json", newer)
    assert find(run) == newer
    write_value(run, "ceilings.json", older)
    assert find(run) == here


@pytest.mark.parametrize("what", ["torch", "machine", "fingerprint", "damaged", "uncounted"])
def test_ceilings_of_something_else_are_none(tmp_path: Path, what: str) -> None:
    other = MachineIdentity(hostname_hash="0" * 16, cpu="Z80", num_cores=1, memory_bytes=65536)
    run = keep_run(tmp_path, machine=other if what == "machine" else None)
    kept = ceilings_of_here(torch_version="2.12.0" if what == "torch" else "2.13.0")
    if what == "fingerprint":
        kept = replace(kept, fingerprint="f" * 16)
    keep_ceilings(run, kept)
    if what == "damaged":
        (run.store / "machine" / f"{kept.fingerprint}.json").write_text("{")
    assert find(run, replace(MEASURED, count=None) if what == "uncounted" else MEASURED) is None


def test_a_run_whose_record_is_lost_has_none(tmp_path: Path) -> None:
    run = keep_run(tmp_path)
    keep_ceilings(run, ceilings_of_here())
    (run.folder / "command.json").unlink()
    assert find(run) is None
