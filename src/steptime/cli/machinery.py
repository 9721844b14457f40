"""What `steptime machine` does: look, measure or take what was measured before, print."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from steptime.cli.machine import MachineOptions
from steptime.cli.output import console_for, say, write_json
from steptime.cli.progress import OverwrittenLine
from steptime.core.store import make_folder, store_in
from steptime.errors import StoreError
from steptime.launch.origin import read_machine
from steptime.machine import ceilings as machine
from steptime.machine.inventory import read_inventory
from steptime.machine.values.inventory_values import Ceilings, Inventory
from steptime.report.document.machine_document import machine_envelope
from steptime.report.text.ceilings_text import describe_told, live_told, machine_lines
from steptime.report.text.page import page_of
from steptime.watch.device_sampler import load_nvml


def show_machine(options: MachineOptions) -> int:
    """Print the machine; the exit code."""
    environment = dict(os.environ)
    world_size, rank = environment.get("WORLD_SIZE", ""), environment.get("RANK", "")
    is_launched = world_size.isdigit() and int(world_size) > 1 and rank.isdigit()
    if is_launched and rank != "0":
        return 0 if options.only_inventory else _join(options, environment)
    inventory = read_inventory(options.data, load_nvml=load_nvml, environment=environment)
    if options.only_inventory:
        return _report(options, inventory, None)
    python = machine.ask_python(
        machine.find_python(options.python, environment), environment=environment
    )
    asked = machine.CeilingRequest(
        python=python,
        inventory=inventory,
        fingerprint=machine.fingerprint_of(read_machine(), inventory, python),
        budget_s=options.budget_s,
        folder=_folder(options.store),
        is_launched=is_launched,
    )
    return _report(options, inventory, _ceilings(asked, options, environment))


def _ceilings(
    asked: machine.CeilingRequest, options: MachineOptions, environment: Mapping[str, str]
) -> Ceilings:
    """What was measured before, or is now."""
    if asked.python.missing is not None:
        return machine.unmeasured(asked, now_s=time.time())
    # Ranks of a launcher wait for each other, so that none of them may take old figures.
    known = None if options.is_again or asked.is_launched else machine.load(asked)
    if known is not None:
        return known
    line = OverwrittenLine(sys.stderr)

    def tell(told: machine.Told) -> None:
        line.show(live_told(told.device, told.name, left_s=told.left_s))
        if told.ceiling is not None:
            line.say_plain(f"steptime: {describe_told(told.ceiling)}")

    try:
        found = machine.measure(asked, environment=environment, tell=tell)
    finally:
        line.close()
    machine.keep(found, asked)
    return found


def _join(options: MachineOptions, environment: Mapping[str, str]) -> int:
    """One of the other ranks: it takes part in the collectives, and reports nothing."""
    path = machine.find_python(options.python, environment)
    failure = machine.join_ranks(
        machine.Python(path=path), budget_s=options.budget_s, environment=environment
    )
    if failure is not None:
        say(f"steptime: rank {environment['RANK']} took no part: {failure}")
    return 0


def _folder(folder: Path) -> Path | None:
    """Where figures and the disk's file are kept; None where nothing can be written."""
    try:
        found = make_folder(folder, kind="machine")
    except StoreError as error:
        say(f"steptime: {error}; the figures are not kept")
        return None
    if found.parent != store_in(folder):
        say(f"steptime: nothing can be written to {folder}; the figures are in {found.parent}")
    return found


def _report(options: MachineOptions, inventory: Inventory, found: Ceilings | None) -> int:
    document = machine_envelope(inventory, found)
    if options.json is not None:
        write_json(options.json, document)
        return document.exit_code
    page = page_of(console_for(sys.stdout))
    age_s = None if found is None else max(0.0, time.time() - found.measured_unix_s - found.took_s)
    page.write(machine_lines(inventory, found, age_s=age_s, page=page))
    return document.exit_code
