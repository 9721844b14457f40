"""What `steptime machine --check` judges by: the machine, torch, and the last run of the store."""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from steptime.app.run_listing import find_run
from steptime.cli.results import load
from steptime.core.store import find_store, read_value
from steptime.errors import NotFoundError, SteptimeError
from steptime.launch.values import CommandRecord
from steptime.machine.ceilings import find_python
from steptime.machine.checks.check_facts import CheckFacts, LastRun
from steptime.machine.checks.gather import Request, gather
from steptime.machine.inventory import read_inventory
from steptime.watch.device_sampler import load_nvml

_MAX_SCRIPT_BYTES = 1 << 20


def gather_facts(options: argparse.Namespace) -> CheckFacts:
    """Everything that the checks judge by.

    Raises:
        NotFoundError: a Python or a log that was named is not there.
    """
    log = None if options.nccl_log is None else Path(options.nccl_log)
    if log is not None and not log.is_file():
        raise NotFoundError(f"--nccl-log: there is no file `{log}`.", hint="Name an existing one.")
    data, store = Path(options.data), Path(options.store or ".")
    inventory = read_inventory(data, load_nvml=load_nvml, environment=os.environ)
    request = Request(
        python=_python(options.python),
        environment=dict(os.environ),
        folders={
            "data": data.absolute(),
            "this folder": Path.cwd(),
            "temporary": Path(tempfile.gettempdir()),
        },
        nccl_log=log,
        run=_last_run(store),
    )
    return gather(inventory, request, load_nvml=load_nvml)


def _python(name: str | None) -> str | None:
    """The interpreter that is meant, or the one on the PATH, if there is one."""
    if name is not None:
        return find_python(name, os.environ)
    with suppress(NotFoundError):
        return find_python(None, os.environ)
    return None


def _last_run(store: Path) -> LastRun | str:
    """The newest run of the store with what its command said; or why there is none."""
    try:
        run = find_run(find_store(store), "last")
        result = load(run)
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
        with suppress(OSError), (folder / name).open("rb") as file:
            texts.append(file.read(_MAX_SCRIPT_BYTES).decode(errors="replace"))
    return "\n".join(texts)
