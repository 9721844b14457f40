"""Gathers the facts that the checks judge: the machine, torch, and the last run of the store."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from steptime.app.stored.load import load_run
from steptime.app.stored.run_listing import find_run
from steptime.core.store import find_store, read_value
from steptime.errors import NotFoundError, SteptimeError
from steptime.launch.values import CommandRecord
from steptime.machine.ceilings import find_python
from steptime.machine.checks.gather import Request, gather
from steptime.machine.inventory import read_inventory
from steptime.machine.values.check_facts import CheckFacts, LastRun
from steptime.record.regular_file import open_regular
from steptime.watch.host.device_sampler import load_nvml

_MAX_SCRIPT_BYTES = 1 << 20


def gather_facts(
    *, python: str | None, data: Path, store: Path | None, nccl_log: Path | None
) -> CheckFacts:
    """Return everything that the checks judge.

    Raises:
        NotFoundError: there is no such interpreter, or the named store holds no runs.
    """
    inventory = read_inventory(data, load_nvml=load_nvml, environment=os.environ)
    request = Request(
        python=_python(python),
        environment=dict(os.environ),
        folders={
            "data": data.absolute(),
            "this folder": Path.cwd(),
            "temporary": Path(tempfile.gettempdir()),
        },
        nccl_log=nccl_log,
        run=_last_run(store),
    )
    return gather(inventory, request, load_nvml=load_nvml)


def _python(name: str | None) -> str | None:
    """Return the interpreter that is meant, or the one on the PATH, if there is one."""
    if name is not None:
        return find_python(name, os.environ)
    with suppress(NotFoundError):
        return find_python(None, os.environ)
    return None


def _last_run(store: Path | None) -> LastRun | str:
    """Return the newest run of the store with its command's output, or why there is none.

    Raises:
        NotFoundError: a named store holds no runs.
    """
    if store is not None:
        find_store(store)
    try:
        run = find_run(find_store(store), "last")
        result = load_run(run)
    except NotFoundError:
        return "no_run"
    except (SteptimeError, OSError):
        return "run_not_readable"
    environment: dict[str, str] = {}
    script = ""
    with suppress(SteptimeError, OSError):
        command = read_value(run, "command.json", CommandRecord)
        environment = dict(command.environment or {})
        script = _script(Path(command.cwd or "."), command.script_files)
    return LastRun(
        measurement=result.measurement,
        diagnosis=result.diagnosis,
        environment=environment,
        script=script,
    )


def _script(folder: Path, names: tuple[str, ...]) -> str:
    texts = []
    for name in names:
        with suppress(OSError), open_regular(folder / name, max_bytes=sys.maxsize) as file:
            texts.append(file.read(_MAX_SCRIPT_BYTES).decode(errors="replace"))
    return "\n".join(texts)
