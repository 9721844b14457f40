"""The ceilings that a run is judged by: those of its folder, or newer ones of this machine.

Nothing is ever measured here: `steptime machine` measures, and keeps the results in the store.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.core.codec import decode, encode
from steptime.core.devices.machine_condition import MachineCondition
from steptime.core.store import Run, read_value, write_text
from steptime.errors import DamagedRunError
from steptime.launch.values import CommandRecord
from steptime.measure.values.measurement import Measurement
from steptime.record.regular_file import read_regular

if TYPE_CHECKING:
    from steptime.diagnose.values.reach_values import Waterfall
    from steptime.machine.values.ceiling_values import Ceiling, Ceilings
    from steptime.machine.values.inventory_values import Inventory

CEILINGS_FILE = "ceilings.json"
_FOLDER = "machine"

_SOON_S = 3600.0
"""Within this time after a run, GPUs are in the state in which it used them, as far as is known."""


def read_ceilings(run: Run) -> Ceilings | None:
    """Return the ceilings that the run was judged by when it ended."""
    if not os.path.lexists(run.folder / CEILINGS_FILE):
        return None
    from steptime.machine.values.ceiling_values import Ceilings

    try:
        return read_value(run, CEILINGS_FILE, Ceilings)
    except (OSError, DamagedRunError):
        return None


def find_ceilings(run: Run, measurement: Measurement) -> Ceilings | None:
    """Return the newest of the run's own and of this machine's for the run's Python and torch.

    Each has its doubts: those of the measurement, and whether the machine's state was another one.
    """
    from steptime.machine.ceiling_state import judge

    own = read_ceilings(run)
    record = record_of(run)
    condition = None if record is None else record.condition
    if own is not None:
        own = judge(own, condition=condition)
    if not measurement.ranks or measurement.count is None:
        return own
    first = measurement.ranks[0]
    wanted = (first.python_version, first.torch_version)
    fit = [
        one
        for one in _kept(run.store / _FOLDER)
        if one.bench and (one.bench.python_version, one.bench.torch_version) == wanted
    ]
    if own is not None:
        fit = [one for one in fit if one.measured_unix_s > own.measured_unix_s]
    if not fit or record is None or not _is_here(record):
        return own
    here = _of_here(fit, record)
    return max(here, key=lambda one: one.measured_unix_s, default=own)


def note_exceeded(run: Run, found: Ceilings, waterfall: Waterfall) -> None:
    """Keep in the store what a run reached above a ceiling, so that it is provisional from now on.

    The store's own file is rewritten only if it is of the same measurement.
    """
    ratios = {
        one.ceiling: one.ratio
        for one in reversed(waterfall.exceeded)
        if one.is_proof and one.ceiling is not None
    }
    path = run.store / _FOLDER / f"{found.fingerprint}.json"
    try:
        kept = _read(path)
        is_same = kept.measured_unix_s == found.measured_unix_s
        if is_same and len(kept.ceilings) == len(found.ceilings):
            ceilings = tuple(
                replace(one, state=replace(one.state, exceeded_rate=_reached(judged, ratios)))
                for one, judged in zip(kept.ceilings, found.ceilings, strict=True)
            )
            if ceilings != kept.ceilings:
                write_text(path, encode(replace(kept, ceilings=ceilings)) + "\n")
    except (OSError, DamagedRunError):
        return


def _reached(one: Ceiling, ratios: Mapping[str, float]) -> float | None:
    best, known = one.fastest_rate, one.state.exceeded_rate
    ratio = ratios.get(one.dtype or one.variant or "")
    if ratio is None or not best or one.kind not in ("matmul", "copy", "triad"):
        return known
    return max(known or 0.0, ratio * best)


def record_of(run: Run) -> CommandRecord | None:
    """Return what was started; None where that cannot be read."""
    try:
        return read_value(run, "command.json", CommandRecord)
    except (OSError, DamagedRunError):
        return None


def _kept(folder: Path) -> Iterator[Ceilings]:
    try:
        paths = sorted(folder.glob("*.json"))
    except OSError:
        return
    for path in paths:
        try:
            yield _read(path)
        except (OSError, DamagedRunError):
            continue


def _read(path: Path) -> Ceilings:
    from steptime.machine.values.ceiling_values import Ceilings

    return decode(Ceilings, read_regular(path), where=path.name)


def _is_here(record: CommandRecord) -> bool:
    """Return whether the run was made on this machine, because a store may be shared."""
    from steptime.launch.origin import read_machine

    return record.machine == read_machine()


def _of_here(fit: list[Ceilings], record: CommandRecord) -> list[Ceilings]:
    """Return this machine's ceilings, judged for the state of the machine in the run."""
    from steptime.machine.ceiling_state import judge
    from steptime.machine.inventory import read_inventory
    from steptime.watch.host.device_sampler import load_nvml

    inventory = read_inventory(Path.cwd(), load_nvml=load_nvml, environment=os.environ)
    condition = record.condition
    if condition is not None and time.time() - (record.ended_unix_s or 0.0) < _SOON_S:
        condition = with_gpus(condition, inventory)
    prints = _fingerprints(fit, inventory)
    return [judge(one, condition=condition) for one in fit if one.fingerprint in prints]


def with_gpus(condition: MachineCondition, inventory: Inventory) -> MachineCondition:
    """Return the state of a machine with that of its GPUs."""
    named = [gpu for gpu in inventory.gpus if gpu.uuid is not None]
    return replace(
        condition,
        power_limits_w={g.uuid: g.power_limit_w for g in named if g.uuid and g.power_limit_w},
        mig_modes={g.uuid: g.has_mig for g in named if g.uuid and g.has_mig is not None},
    )


def _fingerprints(fit: list[Ceilings], inventory: Inventory) -> set[str]:
    """Return this machine's fingerprints for the interpreters that measured, with any disk."""
    from steptime.launch.origin import read_machine
    from steptime.machine.ceilings import Python, fingerprint_of

    machine = read_machine()
    places = [
        replace(inventory, data=replace(inventory.data, mount=mount))
        for mount in (inventory.data.mount, *inventory.mounts)
    ]
    pythons = {
        Python(
            path=one.bench.python,
            version=one.bench.python_version,
            torch_version=one.bench.torch_version,
        )
        for one in fit
        if one.bench is not None
    }
    return {fingerprint_of(machine, place, python) for place in places for python in pythons}
