"""Asks torch in a process of the user's Python, in the environment of this shell.

In: an interpreter. Out: `Software`, or why there is no answer.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from steptime.machine.values.check_facts import Pin, Software

_FILE = Path(__file__).resolve().parent.parent / "child" / "torch_software.py"
# It runs as a file, so that neither our names nor those of this folder shadow the user's.
_BOOT = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; sys.dont_write_bytecode = True;"
    " import runpy; runpy.run_path(sys.argv[1], run_name='__main__')"
)
LIMIT_S = 120.0
"""Importing torch takes seconds, or a minute from a cold network file system."""


def ask_software(
    python: str, *, environment: Mapping[str, str], limit_s: float = LIMIT_S
) -> Software | tuple[str, str | None]:
    """Return what torch reports; or why not: a machine word, and the text of the failure."""
    try:
        child = subprocess.Popen(
            [python, "-c", _BOOT, str(_FILE)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            start_new_session=True,
        )
    except OSError as error:
        return "python_does_not_start", str(error)
    try:
        out, errors = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        return "no_answer_in_time", None
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    return parse_software(out.decode(errors="replace"), errors.decode(errors="replace"))


def parse_software(out: str, errors: str = "") -> Software | tuple[str, str | None]:
    """Return the answer in the last line of the output."""
    told: Any = None
    with suppress(ValueError, IndexError):
        told = json.loads(out.strip().splitlines()[-1])
    if not isinstance(told, dict):
        words = errors.strip().splitlines()
        return "torch_did_not_tell", words[-1][:300] if words else None
    if "missing" in told:
        return str(told["missing"]), told.get("detail")
    try:
        return _software(told)
    except (KeyError, TypeError, ValueError) as error:
        return "torch_did_not_tell", str(error)


def _software(told: Mapping[str, Any]) -> Software:
    built, here = told.get("cudnn_built"), told.get("cudnn_here")
    return Software(
        python=told["python"],
        torch=told["torch"],
        python_version=told.get("python_version"),
        cuda=told.get("cuda"),
        hip=told.get("hip"),
        cudnn_built=None if built is None else tuple(built),
        cudnn_here=None if here is None else tuple(here),
        nccl=told.get("nccl"),
        has_nccl=told.get("has_nccl"),
        architectures=tuple(told.get("architectures") or ()),
        num_devices=told.get("num_devices"),
        cuda_error=told.get("cuda_error"),
        num_threads=told.get("num_threads"),
        matmul_precision=told.get("matmul_precision"),
        cudnn_benchmark=told.get("cudnn_benchmark"),
        pins=tuple(
            Pin(name=name, wanted=wanted, installed=installed)
            for name, wanted, installed in told.get("pins") or ()
        ),
        companions=tuple((name, version) for name, version in told.get("companions") or ()),
        installer=told.get("installer"),
        has_pip=bool(told.get("has_pip")),
        is_writable=bool(told.get("is_writable")),
        is_managed=bool(told.get("is_managed")),
        cudnn_folders=tuple(told.get("cudnn_folders") or ()),
    )
