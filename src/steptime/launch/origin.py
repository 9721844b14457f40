"""Where a run comes from: its `command.json` before the command starts.

In: the argv, the environment and the time. Out: a CommandRecord. Everything is read directly from
files or the system, because a process of ours (git, lscpu) would delay the user's command.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from steptime.core.devices.machine_identity import MachineIdentity
from steptime.core.version import installed_version
from steptime.launch.filesystems import find_places
from steptime.launch.script_files import hash_script
from steptime.launch.values import CommandRecord
from steptime.record.hidden_words import hide_words
from steptime.record.regular_file import read_regular
from steptime.watch.host.condition_reader import read_condition
from steptime.watch.host.host_memory import read_group_limit

_REVISION_LENGTH = 12
_MAX_VALUE = 200

_CAPABILITIES = ("amx_bf16", "amx_fp16", "avx512_bf16", "avx512_fp16")
"""Words of /proc/cpuinfo that levers know, all of them Intel's and AMD's own names."""

TOLD_VARIABLES = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"),
    *("OMP_PROC_BIND", "OMP_PLACES", "OMP_WAIT_POLICY", "OMP_SCHEDULE", "GOMP_SPINCOUNT"),
    *("GOMP_CPU_AFFINITY", "KMP_AFFINITY", "KMP_BLOCKTIME", "DNNL_MAX_CPU_ISA", "LD_PRELOAD"),
    *("MALLOC_ARENA_MAX", "MALLOC_CONF", "MALLOC_TRIM_THRESHOLD_", "TOKENIZERS_PARALLELISM"),
    *("CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS"),
    *("CUBLAS_WORKSPACE_CONFIG", "NVIDIA_TF32_OVERRIDE", "PYTORCH_ALLOC_CONF"),
    *("PYTORCH_CUDA_ALLOC_CONF", "TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"),
    *("TORCH_DISTRIBUTED_DEBUG", "NCCL_ALGO", "NCCL_PROTO", "NCCL_DEBUG", "NCCL_IB_DISABLE"),
    *("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_MIN_NCHANNELS", "NCCL_SOCKET_NTHREADS"),
    *("PYTHONOPTIMIZE", "PYTHONHASHSEED", "PYTHONDEVMODE"),
)
"""Variables that affect how fast a training is and that never hold a secret."""


def describe_run(
    run_id: str, argv: tuple[str, ...], *, environment: Mapping[str, str], started_unix_s: float
) -> CommandRecord:
    """Return what is known before the command starts.

    The names of all variables are kept, but values only of `TOLD_VARIABLES`; of the command, what
    looks like a secret is hidden.
    """
    try:
        cwd = Path.cwd()
    except OSError:
        cwd = None  # deleted under the user's shell
    files, script_hash = ((), None) if cwd is None else hash_script(argv, folder=cwd)
    return CommandRecord(
        run_id=run_id,
        argv=hide_words(argv),
        cwd=None if cwd is None else str(cwd),
        environment_names=tuple(sorted(environment)),
        started_unix_s=started_unix_s,
        steptime_version=installed_version(),
        python_version=sys.version.split()[0],
        git_revision=None if cwd is None else read_git_revision(cwd),
        machine=read_machine(),
        parent_pid=os.getpid(),
        environment=tell_environment(environment),
        script_files=files,
        script_hash=script_hash,
        places=() if cwd is None else find_places(argv, folder=cwd),
        condition=read_condition(),
        capabilities=read_capabilities(),
    )


def tell_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables whose values are kept, with long values cut."""
    return {
        name: environment[name][:_MAX_VALUE]
        for name in TOLD_VARIABLES
        if environment.get(name) is not None
    }


def read_machine() -> MachineIdentity:
    """Return this machine, with its name hashed."""
    memory_bytes = None
    with suppress(ValueError, OSError):
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return MachineIdentity(
        hostname_hash=hashlib.sha256(os.uname().nodename.encode()).hexdigest()[:16],
        cpu=_cpu_model(),
        num_cores=os.cpu_count(),
        memory_bytes=memory_bytes,
        memory_limit_bytes=read_group_limit(os.getpid()),
    )


def _cpu_model() -> str | None:
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return os.uname().machine or None


def read_capabilities() -> tuple[str, ...] | None:
    """Return its maker and what a processor can do in 16 bits; None if the machine is silent."""
    maker: tuple[str, ...] = ()
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("vendor_id"):
                maker = (line.split()[-1].lower(),)
            if line.startswith("flags"):
                return maker + tuple(word for word in _CAPABILITIES if word in line.split())
    return None


def read_git_revision(folder: Path) -> str | None:
    """Return the commit checked out in or above the folder, from git's files; None if unknown."""
    for place in (folder, *folder.parents):
        git = place / ".git"
        with suppress(OSError, ValueError):
            if git.is_file():  # a worktree or submodule: `gitdir: path`
                git = place / _text_of(git).partition(":")[2].strip()
            if git.is_dir():
                return _resolve(git, _text_of(git / "HEAD").strip())
    return None


def _resolve(git: Path, head: str) -> str | None:
    if not head.startswith("ref:"):
        return head[:_REVISION_LENGTH]
    name = head.partition(":")[2].strip()
    common = git
    with suppress(OSError):
        common = git / _text_of(git / "commondir").strip()
    for path in (git / name, common / name):
        with suppress(OSError):
            return _text_of(path).strip()[:_REVISION_LENGTH]
    with suppress(OSError):
        for line in _text_of(common / "packed-refs").splitlines():
            revision, _, packed = line.partition(" ")
            if packed == name:
                return revision[:_REVISION_LENGTH]
    return None  # no commit yet


def _text_of(path: Path) -> str:
    return read_regular(path).decode("utf-8")
