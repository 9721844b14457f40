"""Reads the machine: what it has, what it reaches, and what its checks judge.

In: a `MachineOptions`. Out: its inventory with ceilings that were measured now or before.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from steptime.app.stored.kept_ceilings import with_gpus
from steptime.core.store import make_folder, store_in, why_unwritable
from steptime.errors import StoreError
from steptime.launch.origin import read_machine
from steptime.machine import ceilings as ceilings_of
from steptime.machine.inventory import read_inventory
from steptime.machine.values.ceiling_values import Ceilings
from steptime.machine.values.inventory_values import Inventory
from steptime.record.numbers_told import whole_number_in
from steptime.watch.host.condition_reader import read_condition
from steptime.watch.host.device_sampler import load_nvml

Tell = Callable[[str], None]
Progress = Callable[[ceilings_of.Told], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineOptions:
    """What to find out about the machine; `is_again` also measures what was measured before."""

    python: str | None = None
    data: Path = Path(".")
    store: Path = Path(".")
    budget_s: float = 50.0
    is_again: bool = False
    only_inventory: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """What the machine has, and what it reaches; `age_s` is None if nothing was measured."""

    inventory: Inventory
    ceilings: Ceilings | None = None
    age_s: float | None = None


def examine(options: MachineOptions, *, tell: Tell, progress: Progress) -> MachineFacts | None:
    """Read the machine, and measure it if its figures are not known.

    Returns:
        The machine; None in a rank of a launcher that takes part and reports nothing.

    Raises:
        NotFoundError: there is no such interpreter.
    """
    environment = dict(os.environ)
    world_size, rank = (whole_number_in(environment.get(n)) for n in ("WORLD_SIZE", "RANK"))
    is_launched = (world_size or 0) > 1 and rank is not None
    if is_launched and rank != 0:
        if not options.only_inventory:
            _join(options, environment, tell)
        return None
    inventory = read_inventory(options.data, load_nvml=load_nvml, environment=environment)
    if options.only_inventory:
        return MachineFacts(inventory=inventory)
    python = ceilings_of.ask_python(
        ceilings_of.find_python(options.python, environment), environment=environment
    )
    asked = ceilings_of.CeilingRequest(
        python=python,
        inventory=inventory,
        fingerprint=ceilings_of.fingerprint_of(read_machine(), inventory, python),
        budget_s=options.budget_s,
        folder=_folder(options.store, tell),
        is_launched=is_launched,
        condition=with_gpus(read_condition(), inventory),
    )
    found = _known(asked, is_again=options.is_again)
    if found is None:
        found = ceilings_of.measure(asked, environment=environment, tell=progress)
        ceilings_of.keep(found, asked)
    age_s = max(0.0, time.time() - found.measured_unix_s - found.took_s)
    return MachineFacts(inventory=inventory, ceilings=found, age_s=age_s)


def _known(asked: ceilings_of.CeilingRequest, *, is_again: bool) -> Ceilings | None:
    """Return earlier figures, or why nothing can be measured; None if it is to be measured now."""
    if asked.python.missing is not None:
        return ceilings_of.unmeasured(asked, now_s=time.time())
    # Ranks of a launcher wait for each other, so none of them may use old figures.
    return None if is_again or asked.is_launched else ceilings_of.load(asked)


def _join(options: MachineOptions, environment: Mapping[str, str], tell: Tell) -> None:
    """Take part in the collectives as one of the other ranks, and report nothing."""
    path = ceilings_of.find_python(options.python, environment)
    failure = ceilings_of.join_ranks(
        ceilings_of.Python(path=path), budget_s=options.budget_s, environment=environment
    )
    if failure is not None:
        tell(f"rank {environment['RANK']} took no part: {failure}")


def _folder(folder: Path, tell: Tell) -> Path | None:
    """Return where figures and the disk's file are kept, or None if nothing can be written."""
    try:
        found = make_folder(folder, kind="machine")
    except StoreError as error:
        tell(f"{error} The figures are not kept.")
        return None
    if found.parent != store_in(folder):
        wanted = store_in(folder)
        because = why_unwritable(wanted, kind="machine") or "it could not be made"
        tell(f"{wanted} cannot be written ({because}); the figures are in {found.parent}")
    return found
