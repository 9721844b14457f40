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

from steptime.core.printable import printable
from steptime.errors import NotFoundError, ScriptFailedError, UsageError
from steptime.launch.user_command import user_environment
from steptime.machine.ceilings import find_python
from steptime.verify.model.probes import PredictRequest, ProbeInputs, RowAnswers

_CHILD = Path(__file__).with_name("predict_child.py")
_BOOT = """
import importlib.util, json, sys
kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True
spec = importlib.util.spec_from_file_location("_steptime_predict", sys.argv[1])
child = importlib.util.module_from_spec(spec)
spec.loader.exec_module(child)
sys.dont_write_bytecode = kept
child.answer(json.loads(sys.argv[2]))
"""
_LAST_LINES, _LAST_BYTES = 6, 20_000


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

        for one in (self.predictor, *(n for r in requests for n in (r.change, r.check) if n)):
            _check_function(one)
        environment = user_environment()
        python = find_python(self.python, environment)
        with tempfile.TemporaryDirectory(prefix="steptime-") as name:
            folder = Path(name)
            np.savez(folder / "base.npz", **inputs.columns)
            for number, request in enumerate(requests):
                np.savez(folder / f"inputs-{number}.npz", **request.columns)
            plan = {
                "predictor": self.predictor,
                "folder": name,
                "is_array": inputs.is_array,
                "tasks": [(one.change, one.dose, one.check) for one in requests],
            }
            words = [python, "-c", _BOOT, str(_CHILD), json.dumps(plan)]
            self._run(words, folder, environment)
            return [_read(folder, number) for number in range(len(requests))]

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
            how = f"did not end within {self.limit_s:g} s (--timeout)"
            try:
                child.wait(timeout=self.limit_s)
                how = f"ended with exit code {child.returncode}"
            except subprocess.TimeoutExpired:
                pass
            finally:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            if child.returncode == 0:
                return
            said.seek(max(0, said.seek(0, os.SEEK_END) - _LAST_BYTES))
            lines = said.read().decode(errors="replace").strip().splitlines()[-_LAST_LINES:]
        raise ScriptFailedError(
            "\n".join([f"the predictor `{self.predictor}` {how}.", *map(printable, lines)]),
            hint="It runs in the Python of --python; without it, in the first on the PATH.",
        )


def _read(folder: Path, number: int) -> RowAnswers:
    import numpy as np

    with np.load(folder / f"answers-{number}.npz", allow_pickle=False) as file:
        found = dict(file)
    with np.load(folder / f"changed-{number}.npz", allow_pickle=False) as file:
        return RowAnswers(columns=dict(file), **found)


def _check_function(name: str) -> None:
    path, _, function = name.rpartition(":")
    if not path.endswith(".py") or not function.isidentifier():
        raise UsageError(f"`{name}` is no predictor or function.", hint="Write FILE.py:FUNCTION.")
    if not Path(path).is_file():
        raise NotFoundError(f"there is no file `{path}`.", hint="Write FILE.py:FUNCTION.")
