"""Says which processes this one trains with: what they share, as a text equal in all of them.

Ranks share the store of their process group. Before a group is initialized, they share what their
launcher put into the environment. Hogwild's processes share the memory of their weights. A
process that shares none of these is a training of its own; `measure.group_kin` decides.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

MAX_TEXT = 300
"""The length of the text: it may hold the path of a file."""

MAX_WORLD = 10_000_000
"""A variable that holds a larger number of ranks, or a larger rank, is not believed."""

_MAPS = "/proc/self/maps"
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)
"""Variables with a rank and the number of ranks: of torchrun, accelerate and DeepSpeed, of
Open MPI, of MPICH and its relatives, and of Slurm's job steps."""


def describe_kinship(torch: Any, optimizer: Any = None) -> dict[str, Any]:
    """Return the fields of a head that say who this process is, and with which others it trains.

    Args:
        torch: the module.
        optimizer: one of this process; None where none has stepped.
    """
    environment = os.environ
    rank: int | None
    rank, world, source = None, 1, "order"
    group, shared = None, "store"
    if is_initialized(torch):
        distributed = torch.distributed
        rank, world, source = distributed.get_rank(), distributed.get_world_size(), "distributed"
        group = _store_of(torch) if world > 1 else None
    else:
        if (launched := launched_rank(environment)) is not None:
            (rank, world), source = launched, "environment"
        shared, group = "launcher", _launched_group(environment)
        if group is None:
            shared, group = "memory", _shared_weights(torch, optimizer)
    return {
        "rank": rank,
        "rank_source": source,
        "world_size": world,
        "ppid": os.getppid(),
        "group": None if group is None else group[:MAX_TEXT],
        "group_source": None if group is None else shared,
        "job": _job(environment),
        "restart": whole_number(environment.get("TORCHELASTIC_RESTART_COUNT")),
    }


def launched_rank(environment: Mapping[str, str]) -> tuple[int, int] | None:
    """Return rank and number of ranks as a launcher set them; None where none did."""
    for rank_name, world_name in _LAUNCHERS:
        rank = whole_number(environment.get(rank_name))
        world = whole_number(environment.get(world_name))
        if rank is not None and (world is not None or rank_name == "RANK"):
            return rank, 1 if world is None else world
    return None


def whole_number(text: str | None) -> int | None:
    """Return the number in a variable; None where it holds anything else."""
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > len(str(MAX_WORLD)):
        return None
    return int(text) if int(text) <= MAX_WORLD else None


def is_initialized(torch: Any) -> bool:
    """Return whether the process trains together with others."""
    distributed = torch.distributed
    return bool(distributed.is_available() and distributed.is_initialized())


def _store_of(torch: Any) -> str:
    """Return the place of the process group's store."""
    find: Callable[[], Any] | None = getattr(
        torch.distributed.distributed_c10d, "_get_default_store", None
    )
    store = None if find is None else find()
    while (inner := getattr(store, "underlying_store", None)) is not None:
        store = inner
    port, path = getattr(store, "port", None), getattr(store, "path", None)
    if port:
        return f"tcp://{getattr(store, 'host', '')}:{port}"
    if path:
        return f"file://{path}"
    # Another kind of store, or none: what launched this process is the next best thing.
    return _launched_group(os.environ) or f"parent:{os.getppid()}"


def _launched_group(environment: Mapping[str, str]) -> str | None:
    """Return what a launcher gave to all ranks alike; None unless it started several."""
    found = launched_rank(environment)
    if found is None or found[1] < 2:
        return None
    if job := _job(environment):
        return f"elastic:{job}"
    address, port = environment.get("MASTER_ADDR"), environment.get("MASTER_PORT")
    if address and port:
        return f"tcp://{address}:{port}"
    job_id, step_id = environment.get("SLURM_JOB_ID"), environment.get("SLURM_STEP_ID")
    if job_id and step_id and environment.get("SLURM_STEP_NUM_TASKS"):
        return f"slurm:{job_id}.{step_id}"
    for name in ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "HYDI_CONTROL_FD"):
        if value := environment.get(name):
            return f"mpi:{value}"
    return f"mpi:{os.getppid()}" if "PMI_RANK" in environment else None


def _job(environment: Mapping[str, str]) -> str | None:
    """Return the id of a job of torchrun, which stays the same after a restart."""
    job = environment.get("TORCHELASTIC_RUN_ID")
    return None if job in (None, "", "none") else job


def _shared_weights(torch: Any, optimizer: Any) -> str | None:
    """Return the shared memory that holds the first weight, if it does: Hogwild trains so."""
    groups = getattr(optimizer, "param_groups", None) or ()
    weight = next((weight for group in groups for weight in group.get("params", ())), None)
    if not isinstance(weight, torch.Tensor):
        return None
    with torch._C.DisableTorchFunction():  # a mode of the script's own may be on
        if weight.device.type != "cpu":
            return None
        if type(weight.data) is not torch.Tensor or not weight.is_shared():
            return None
        return _mapped_file(weight.data_ptr())


def _mapped_file(address: int) -> str | None:
    """Return the device and the number of the file that is mapped at an address."""
    with open(_MAPS, encoding="ascii", errors="replace") as file:
        for line in file:
            where, _, _, device, inode = line.split(maxsplit=5)[:5]
            begin, _, end = where.partition("-")
            if int(begin, 16) <= address < int(end, 16):
                return None if inode == "0" else f"memory:{device}:{inode}"
    return None
