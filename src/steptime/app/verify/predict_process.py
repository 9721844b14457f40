"""Asks a predictor: a function of this program, or one in a process of the user's Python.

In: what is to be predicted. Out: the answers, or one error with the last lines that it wrote.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from steptime.app.user_function import function_named
from steptime.app.verify.predict_child import react
from steptime.core.printable import printable
from steptime.errors import ScriptFailedError
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
_DONE = "ended before it had answered"
_LAST_LINES, _LAST_BYTES = 6, 20_000


def ask_function(
    predict: Callable[[Any], Any], inputs: ProbeInputs, requests: Sequence[PredictRequest]
) -> list[RowAnswers]:
    """Return the answers of a function, in the order of the requests."""
    _check_functions(*requests)
    ask, base, is_array = partial(react, predict), inputs.columns, inputs.is_array
    answers = (ask(base, one.columns, *one.task(), is_array=is_array) for one in requests)
    return [RowAnswers(**one) for one in answers]


def ask_process(
    predictor: str,
    inputs: ProbeInputs,
    requests: Sequence[PredictRequest],
    *,
    python: str | None = None,
    limit_s: float = 600.0,
) -> list[RowAnswers]:
    """Return the answers of `FILE.py:FUNCTION`, in the order of the requests.

    Args:
        predictor: the predictor.
        inputs: the rows.
        requests: what it is asked.
        python: the interpreter that runs it; None for the first on the PATH.
        limit_s: the time after which it is ended [s].

    Raises:
        UsageError: a function is not named as FILE.py:FUNCTION.
        NotFoundError: there is no such file, or no such Python.
        ScriptFailedError: the predictor ended without all answers, or took too long.
    """
    import numpy as np

    _check_functions(PredictRequest(change=predictor), *requests)
    environment = user_environment()
    with tempfile.TemporaryDirectory(prefix="steptime-") as made:
        folder = Path(made)
        parts = [("base", inputs.columns)]
        parts += [(f"inputs-{i}", request.columns) for i, request in enumerate(requests)]
        for name, columns in parts:  # `file` is a name that NumPy keeps for itself
            arrays = {f"_{column}": values for column, values in columns.items()}
            np.savez(folder / f"{name}.npz", **arrays)
        plan = {
            "predictor": predictor,
            "folder": made,
            "is_array": inputs.is_array,
            "tasks": [one.task() for one in requests],
        }
        words = [find_python(python, environment), "-c", _BOOT, str(_CHILD), json.dumps(plan)]
        how, said = _run(words, folder / "said", environment, limit_s)
        with suppress(OSError, ValueError, EOFError, zipfile.BadZipFile):
            if how == _DONE:
                return [_read(folder / f"answers-{i}.npz") for i in range(len(requests))]
    raise ScriptFailedError(
        "\n".join([f"the predictor `{predictor}` {how}.", *said]),
        hint="It runs in the Python of --python; without it, in the first on the PATH.",
    )


def _run(
    words: list[str], said: Path, environment: dict[str, str], limit_s: float
) -> tuple[str, list[str]]:
    """Run a process and end its group; return how it ended, and the last lines that it wrote."""
    with said.open("w+b") as output:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )
        try:
            code = child.wait(timeout=limit_s)
            how = _DONE if code == 0 else f"ended with exit code {code}"
            how = f"was ended by signal {-code}" if code < 0 else how
        except subprocess.TimeoutExpired:
            how = f"did not answer within {limit_s:g} s (--timeout)"
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        output.seek(max(0, output.seek(0, os.SEEK_END) - _LAST_BYTES))
        lines = output.read().decode(errors="replace").strip().splitlines()
    return how, [printable(line) for line in lines[-_LAST_LINES:]]


def _read(path: Path) -> RowAnswers:
    import numpy as np

    with np.load(path, allow_pickle=False) as file:
        return RowAnswers(**dict(file))


def _check_functions(*requests: PredictRequest) -> None:
    for name in {name for one in requests for name in (one.change, one.check) if name}:
        function_named(name)
