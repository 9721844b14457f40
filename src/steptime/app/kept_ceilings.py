"""The ceilings that a run is judged by: those of its folder, or newer ones of this machine.

Nothing is ever measured here: `steptime machine` measures, and keeps the results in the store.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.core.codec import decode
from steptime.core.store import Run, read_value
from steptime.errors import DamagedRunError
from steptime.launch.values import CommandRecord
from steptime.measure.values.measurement import Measurement
from steptime.record.regular_file import read_regular

if TYPE_CHECKING:
    from steptime.machine.values.inventory_values import Ceilings

CEILINGS_FILE = "ceilings.json"
_FOLDER = "machine"


def read_ceilings(run: Run) -> Ceilings | None:
    """Return the ceilings that the run was judged by when it ended."""
    if not os.path.lexists(run.folder / CEILINGS_FILE):
        return None
    from steptime.machine.values.inventory_values import Ceilings

    try:
        return read_value(run, CEILINGS_FILE, Ceilings)
    except (OSError, DamagedRunError):
        return None


def find_ceilings(run: Run, measurement: Measurement) -> Ceilings | None:
    """Return the newest of the run's own and of this machine's for the run's Python and torch."""
    own = read_ceilings(run)
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
    if not fit or not _is_here(run):
        return own
    prints = _fingerprints(fit)
    here = [one for one in fit if one.fingerprint in prints]
    return max(here, key=lambda one: one.measured_unix_s, default=own)


def _kept(folder: Path) -> Iterator[Ceilings]:
    from steptime.machine.values.inventory_values import Ceilings

    try:
        paths = sorted(folder.glob("*.json"))
    except OSError:
        return
    for path in paths:
        try:
            yield decode(Ceilings, read_regular(path), where=path.name)
        except (OSError, DamagedRunError):
            continue


def _is_here(run: Run) -> bool:
    """Return whether the run was made on this machine, because a store may be shared."""
    from steptime.launch.origin import read_machine

    try:
        return read_value(run, "command.json", CommandRecord).machine == read_machine()
    except (OSError, DamagedRunError):
        return False


def _fingerprints(fit: list[Ceilings]) -> set[str]:
    """Return this machine's fingerprints for the interpreters that measured, with any disk."""
    from steptime.launch.origin import read_machine
    from steptime.machine.ceilings import Python, fingerprint_of
    from steptime.machine.inventory import read_inventory
    from steptime.watch.device_sampler import load_nvml

    machine = read_machine()
    inventory = read_inventory(Path.cwd(), load_nvml=load_nvml, environment=os.environ)
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
