"""Asks a user's predictor in a process of the user's Python.

In: what is to be predicted. Out: the answers, or one error with the last lines that it wrote.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptime.core.printable import printable
from steptime.errors import NotFoundError, ScriptFailedError, UsageError
from steptime.launch.user_command import user_environment
from steptime.machine.ceilings import find_python
from steptime.verify.model.probes import PredictRequest, ProbeInputs, RowAnswers

_CHILD = Path(__file__).with_name("predict_child.py")
_BOOT = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("_steptime_predict", sys.argv[1])
child = importlib.util.module_from_spec(spec)
kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True
spec.loader.exec_module(child)
sys.dont_write_bytecode = kept
with open(sys.argv[2], encoding="utf-8") as file:
    plan = json.load(file)
child.answer(plan)
"""
_LAST_LINES = 6
_LAST_BYTES = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorProcess:
    """A predictor, and the Python that runs it.

    Attributes:
        predictor: `FILE.py:FUNCTION`.
        python: the interpreter; None for the first on the PATH.
        limit_s: the time after which it is ended [s].
    """

    predictor: str
    python: str | None = None
    limit_s: float = 600.0

    def ask(self, inputs: ProbeInputs, requests: Sequence[PredictRequest]) -> list[RowAnswers]:
        """Return the answers, in the order of the requests.

        Raises:
            UsageError: a function is not named as FILE.py:FUNCTION.
            NotFoundError: there is no such file, or no such Python.
            ScriptFailedError: the predictor ended with an error, or took too long.
        """
        import numpy as np

        names = {request.change for request in requests} | {one.check for one in requests}
        for name in [self.predictor, *sorted(filter(None, names))]:
            check_function(name)
        environment = user_environment()
        python = find_python(self.python, environment)
        with tempfile.TemporaryDirectory(prefix="steptime-") as name:
            folder = Path(name)
            np.savez(folder / "base.npz", **inputs.columns)
            for number, request in enumerate(requests):
                if request.columns is not None:
                    changed = {
                        key: values
                        for key, values in request.columns.items()
                        if values is not inputs.columns[key]
                    }
                    np.savez(folder / f"inputs-{number}.npz", **changed)
            plan = folder / "plan.json"
            plan.write_text(json.dumps(self._plan(folder, inputs, requests)), encoding="utf-8")
            self._run([python, "-c", _BOOT, str(_CHILD), str(plan)], folder, environment)
            return [_read(folder, number) for number in range(len(requests))]

    def _plan(
        self, folder: Path, inputs: ProbeInputs, requests: Sequence[PredictRequest]
    ) -> dict[str, Any]:
        tasks = [
            {
                "has_inputs": one.columns is not None,
                "change": one.change,
                "dose": one.dose,
                "check": one.check,
            }
            for one in requests
        ]
        return {
            "predictor": self.predictor,
            "folder": str(folder),
            "is_array": inputs.is_array,
            "tasks": tasks,
        }

    def _run(self, words: list[str], folder: Path, environment: dict[str, str]) -> None:
        with (folder / "said").open("w+b") as said:
            child = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=environment,
                start_new_session=True,
            )
            is_late = False
            try:
                child.wait(timeout=self.limit_s)
            except subprocess.TimeoutExpired:
                is_late = True
            finally:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            size = said.seek(0, os.SEEK_END)
            said.seek(max(0, size - _LAST_BYTES))
            lines = said.read().decode(errors="replace").strip().splitlines()
        if not is_late and child.returncode == 0:
            return
        how = f"ended with exit code {child.returncode}"
        if is_late:
            how = f"did not end within {self.limit_s:g} s (--timeout)"
        last = "\n".join(printable(line) for line in lines[-_LAST_LINES:])
        raise ScriptFailedError(
            f"the predictor `{self.predictor}` {how}" + (f":\n{last}" if last else "."),
            hint="It runs in the Python of --python; without it, in the first on the PATH.",
        )


def _read(folder: Path, number: int) -> RowAnswers:
    import numpy as np

    with np.load(folder / f"answers-{number}.npz", allow_pickle=False) as file:
        found = {name: file[name] for name in file.files}
    changed = folder / f"changed-{number}.npz"
    if changed.exists():
        with np.load(changed, allow_pickle=False) as file:
            found["columns"] = {name: file[name] for name in file.files}
    return RowAnswers(**found)


def check_function(name: str) -> None:
    """Refuse what is no `FILE.py:FUNCTION`, or names a file that is not there."""
    path, sign, function = name.rpartition(":")
    if not sign or not path.endswith(".py") or not function.isidentifier():
        raise UsageError(f"`{name}` is no predictor or function.", hint="Write FILE.py:FUNCTION.")
    if not Path(path).is_file():
        raise NotFoundError(f"there is no file `{path}`.", hint="Write FILE.py:FUNCTION.")
