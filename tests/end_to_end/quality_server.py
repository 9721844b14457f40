"""Runs scripts in forked children of a process that has torch already: seconds saved a run.

Reads requests from stdin, a JSON object a line: `argv`, `folder`, `environment`, `nproc`. Answers
with a line: the exit codes of the ranks. In a child the guest is let in as `sitecustomize` does.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import sys
import traceback
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch._dynamo  # an optimizer would import it, in each child


def run(request: dict[str, Any], rank: int | None) -> int:
    """One rank, in a child: its exit code."""
    os.environ.clear()
    os.environ.update(request["environment"])
    if rank is not None:
        os.environ.update({"RANK": str(rank), "LOCAL_RANK": str(rank)})
    os.chdir(request["folder"])
    out = os.open(f"output-{rank or 0}", os.O_CREAT | os.O_WRONLY, 0o644)
    os.dup2(out, 1)
    os.dup2(out, 2)
    let_in()
    script = request["argv"][0]
    sys.argv = list(request["argv"])
    sys.path.insert(0, str(Path(script).parent))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as error:
        return int(error.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def let_in() -> None:
    """Load the guest as the injected `sitecustomize` does."""
    folder = os.environ["STEPTIME_GUEST"]
    package = sys.modules["_steptime"] = ModuleType("_steptime")
    package.__path__ = [os.path.dirname(folder)]
    spec = spec_from_file_location(
        "_steptime.guest", f"{folder}/__init__.py", submodule_search_locations=[folder]
    )
    assert spec is not None
    assert spec.loader is not None
    guest = sys.modules["_steptime.guest"] = module_from_spec(spec)
    spec.loader.exec_module(guest)
    guest.start(torch, os.environ["STEPTIME_RUN"], {})


def fork(request: dict[str, Any], rank: int | None) -> int:
    """A child's number."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        code = run(request, rank)
        atexit._run_exitfuncs()
        sys.stdout.flush()
    finally:
        os._exit(code)


def main() -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        request = json.loads(line)
        nproc = request["nproc"]
        pids = [fork(request, rank if nproc else None) for rank in range(nproc or 1)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        print(json.dumps(codes), flush=True)


main()
