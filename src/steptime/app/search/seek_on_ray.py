"""Makes the runs of a search on the machines of a Ray cluster: one run a task, one a machine.

In: the address of a cluster whose machines have this Steptime and the same folder of the command.
Out: the runs, and in the search's folder the same files as if they had been made here.
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

from steptime.app.search.sought_trial import SoughtTrial, make_trial
from steptime.core.store import write_text
from steptime.errors import MissingExtraError, NotFoundError, UsageError
from steptime.isolate.probe import probe
from steptime.record.regular_file import read_regular
from steptime.seek.values.seek_values import SeekRun

LOCAL = "local"
"""Starts a cluster of this machine alone."""
_KEPT_FILES = ("stdout", "stderr", "metric")


def load_ray() -> Any:
    """Return Ray.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import ray
    except (ImportError, RuntimeError) as error:
        raise MissingExtraError(
            "--ray needs Ray, which is not installed.",
            needs="steptime[ray]",
        ) from error
    return ray


def make_there(
    trial: SoughtTrial, *, share_network: bool, allow_unsafe: bool
) -> tuple[SeekRun, dict[str, bytes]]:
    """Make a run on the machine of the task; return it with the files that it left.

    Raises:
        NotFoundError: the command's folder is not there.
    """
    if not trial.cwd.is_dir():
        raise NotFoundError(
            f"a machine of the cluster has no folder {trial.cwd}.",
            hint="Share the folder of the command, or copy it to each machine.",
        )
    with tempfile.TemporaryDirectory(prefix="steptime-search-") as name:
        scratch = Path(name).resolve()
        containment = probe(scratch, allow_unsafe=allow_unsafe, share_network=share_network)
        folder = scratch / trial.name
        run = make_trial(trial, folder=folder, containment=containment)
        paths = [folder / file for file in _KEPT_FILES]
        return run, {path.name: read_regular(path) for path in paths if path.is_file()}


class MakerOnRay:
    """Starts a task for each run, and takes all processors of a machine for it.

    Two runs on one machine would each measure the other.
    """

    def __init__(
        self, address: str, folder: Path, *, share_network: bool, allow_unsafe: bool
    ) -> None:
        ray = load_ray()
        self._ray = ray
        self._folder = folder
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            self._connect(address)
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        machines = [node for node in machines if node.get("CPU", 0) >= 1]
        if not machines:
            self.close()
            raise UsageError(
                f"--ray {address}: no machine of the cluster has a processor to give.",
                hint="See `ray status`.",
            )
        self.num_machines = len(machines)
        task = ray.remote(
            num_cpus=min(node["CPU"] for node in machines),
            num_gpus=min(node.get("GPU", 0) for node in machines),
            max_retries=0,
            scheduling_strategy="SPREAD",
        )(make_there)
        self._task = task
        self._how = {"share_network": share_network, "allow_unsafe": allow_unsafe}
        self._running: dict[Any, SoughtTrial] = {}

    def _connect(self, address: str) -> None:
        try:
            self._ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise UsageError(
                f"--ray {address}: no cluster answers there: {error}",
                hint=f"Start one with `ray start --head`, or write --ray {LOCAL}.",
            ) from error

    def start(self, trial: SoughtTrial) -> None:
        """Begin a run on some machine."""
        self._running[self._task.remote(trial, **self._how)] = trial

    def next_ended(self) -> SeekRun:
        """Wait for a run, write its files as if it had been made here, and return it.

        Raises:
            SteptimeError: what the run raised on its machine.
        """
        (done,), _ = self._ray.wait(list(self._running), num_returns=1)
        trial = self._running.pop(done)
        try:
            run, files = self._ray.get(done)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None
        folder = self._folder / trial.name
        folder.mkdir(exist_ok=True)
        for name, data in files.items():
            write_text(folder / name, data.decode("utf-8", errors="replace"))
        found: SeekRun = run
        return found

    def close(self) -> None:
        """End what still runs, and leave the cluster if this joined it."""
        for task in getattr(self, "_running", {}):
            self._ray.cancel(task, force=True)
        if self._is_ours:
            self._ray.shutdown()
