"""Checks limits of the shell and of a container, and GPUs that the container lacks.

In: facts. Out: judgements.
"""

from __future__ import annotations

from steptime.diagnose.values.finding import Severity
from steptime.machine.checks.check_row import (
    FAILURE,
    CheckRow,
    Judgement,
    Value,
    clean,
    driven_gpus,
    fires,
    not_applicable,
    not_checked,
    nvidia_gpus,
    spans_machines,
)
from steptime.machine.checks.node.limits_raised import started_with
from steptime.machine.checks.remedy import Remedy, by_administrator, in_shell
from steptime.machine.values.check_facts import CheckFacts
from steptime.machine.values.check_values import Certainty, Command, Disruption

_TROUBLES = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
_SHARING = "https://docs.pytorch.org/docs/stable/multiprocessing.html#sharing-strategies"
_TOOLKIT = (
    "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"
)

_HOSTS_LIMIT = "Apptainer has the limits of the shell that starts it: raise them there (`ulimit`)."
_NODES_LIMIT = "A pod has the limit of its node's container runtime: the administrators set it."
_LOG_IN_AGAIN = "The new limit is that of a new login."
_SERVICES_LIMIT = (
    "In a job the limit is the scheduler's daemon's (for Slurm LimitMEMLOCK and LimitNOFILE of "
    "slurmd's service): only the cluster's administrators can raise it."
)

_STACK_FIXED = "The hard limit of this shell forbids more: whoever administers the machine set it."

_SHM_BYTES = 1 << 30  # NCCL's guide gives a container so much
_STACK_BYTES = 64 << 20  # 67108864 in NVIDIA's guides for containers
_LITTLE_STACK_BYTES = 8 << 20  # the usual limit outside containers
_OPEN_FILES = 1024  # the usual limit; each tensor from a worker takes a file
_OPEN_FILES_BIG = 4096


def _shm_small(facts: CheckFacts) -> Judgement:
    limits = facts.inventory.limits
    if limits.shm_bytes is None:
        return not_checked("not_told")
    seen: dict[str, Value] = {"shm_bytes": limits.shm_bytes}
    if limits.shm_bytes >= _SHM_BYTES:
        return clean(seen)
    remount = by_administrator("sudo mount -o remount,size=1G /dev/shm", Disruption.MACHINE)
    again = started_with(
        facts,
        "`--shm-size=1g`",
        pod="Mount a volume `emptyDir: {medium: Memory}` at /dev/shm, in the pod's manifest.",
        hosts="Apptainer has the host's /dev/shm: whoever administers the host can enlarge it.",
    )
    # A single process that loads its own data needs no shared memory.
    run = facts.run.measurement if facts.run is not None else None
    is_alone = run is not None and run.workers is None and run.num_ranks < 2
    return fires(
        Severity.INFO if is_alone else Severity.WARNING,
        Certainty.POSSIBLE if is_alone else Certainty.LIKELY,
        seen=seen,
        cost=FAILURE,
        commands=(remount,) if limits.container is None else (),
        advice=() if limits.container is None else (again,),
    )


def _raise(facts: CheckFacts, name: str, value: str, ulimit: str) -> Remedy:
    """Return what raises a hard limit: the commands of a machine's own, else advice."""
    if facts.inventory.limits.container is not None:
        again = started_with(facts, f"`--ulimit {ulimit}`", pod=_NODES_LIMIT, hosts=_HOSTS_LIMIT)
        return (), (again,)
    if facts.site.scheduler is not None:
        return (), (_SERVICES_LIMIT,)
    # For this user alone; limits.d keeps what others wrote there.
    line = f'echo "$USER - {name} {value}" | sudo tee -a /etc/security/limits.d/90-{name}.conf'
    return (by_administrator(line, Disruption.MACHINE),), (_LOG_IN_AGAIN,)


def _locked_memory_low(facts: CheckFacts) -> Judgement:
    limits = facts.inventory.limits
    has_rdma = any(one.is_active for one in facts.inventory.rdma)
    in_container = limits.container is not None and bool(nvidia_gpus(facts))
    if not has_rdma and not in_container:
        return not_applicable("no_rdma")
    if limits.locked_bytes is None:
        return clean()
    commands, advice = _raise(facts, "memlock", "unlimited", "memlock=-1")
    if facts.system.locked_hard_bytes == -1 and limits.container is None:
        commands, advice = (in_shell("ulimit -l unlimited"),), ()
    is_felt = has_rdma and spans_machines(facts)
    return fires(
        Severity.WARNING if is_felt else Severity.INFO,
        Certainty.LIKELY if is_felt else Certainty.POSSIBLE,
        seen={"locked_bytes": limits.locked_bytes},
        cost=FAILURE if has_rdma else None,
        commands=commands,
        advice=advice,
    )


def _open_files_low(facts: CheckFacts) -> Judgement:
    num = facts.inventory.limits.num_open_files
    if num is None:
        return clean()
    is_big = len(driven_gpus(facts)) > 1
    if num >= (_OPEN_FILES_BIG if is_big else _OPEN_FILES):
        return clean({"num_open_files": num})
    hard = facts.system.num_open_files_hard
    wanted = 65536 if hard in (None, -1) else min(hard or 65536, 65536)
    commands: tuple[Command, ...] = (in_shell(f"ulimit -n {wanted}"),)
    advice: tuple[str, ...] = ()
    if wanted <= num:
        commands, advice = _raise(facts, "nofile", "65536", "nofile=65536:65536")
    return fires(
        Severity.WARNING if num < _OPEN_FILES else Severity.INFO,
        Certainty.POSSIBLE,
        seen={"num_open_files": num},
        cost=FAILURE,
        commands=commands,
        advice=advice,
    )


def _stack_small(facts: CheckFacts) -> Judgement:
    limits = facts.inventory.limits
    if limits.stack_bytes is None:
        return clean()
    seen: dict[str, Value] = {"stack_bytes": limits.stack_bytes}
    hard = facts.system.stack_hard_bytes
    is_fixed = hard is not None and 0 <= hard < _STACK_BYTES
    if limits.stack_bytes < _LITTLE_STACK_BYTES:
        return fires(
            Severity.WARNING,
            Certainty.POSSIBLE,
            seen=seen,
            cost=FAILURE,
            commands=() if is_fixed else (in_shell("ulimit -s 65536"),),
            advice=(_STACK_FIXED,) if is_fixed else (),
        )
    if limits.container is None or not nvidia_gpus(facts):
        return clean(seen)
    if limits.stack_bytes >= _STACK_BYTES:
        return clean(seen)
    again = started_with(facts, "`--ulimit stack=67108864`", pod=_NODES_LIMIT, hosts=_HOSTS_LIMIT)
    return fires(Severity.INFO, Certainty.POSSIBLE, seen=seen, advice=(again,))


def _container_without_gpus(facts: CheckFacts) -> Judgement:
    container = facts.inventory.limits.container
    if container is None:
        return not_applicable("no_container")
    void = facts.environment.get("NVIDIA_VISIBLE_DEVICES") in ("void", "none", "")
    is_there = bool(nvidia_gpus(facts)) or facts.system.has_nvidia_module
    if not is_there and not void:
        return not_applicable("no_nvidia_gpu")
    if driven_gpus(facts) or (facts.system.has_nvidia_files and not void):
        return clean({"container": container})
    seen: dict[str, Value] = {"container": container, "num_gpus": len(nvidia_gpus(facts))}
    if not is_there:  # the image is made for GPUs, but the host's are not visible
        return fires(
            Severity.INFO, Certainty.POSSIBLE, seen=seen, advice=(_with_gpus(facts, container),)
        )
    return fires(
        Severity.CRITICAL, Certainty.LIKELY, seen=seen, advice=(_with_gpus(facts, container),)
    )


def _with_gpus(facts: CheckFacts, container: str) -> str:
    """Return how to pass GPUs in; which ones are free only the host knows."""
    if container == "podman":
        options = "`--device nvidia.com/gpu=0` (the GPUs that are yours)"
    else:
        options = "`--gpus '\"device=0\"'` (the GPUs that are yours)"
    return started_with(
        facts,
        options,
        pod="Ask for nvidia.com/gpu in the pod's manifest (`resources`): the cluster's plugin for "
        "devices hands it out.",
        hosts="Start the container again with `--nv`, in a job that was given GPUs.",
    )


CHECKS = (
    CheckRow(
        code="shm_small",
        subject="limits",
        title="/dev/shm is small",
        seen=("{shm_bytes}",),
        why="DataLoader workers hand batches over through it, and NCCL its buffers. A full one "
        "ends the run with a bus error. Docker's default is 64 MiB.",
        source=_TROUBLES,
        judge=_shm_small,
    ),
    CheckRow(
        code="locked_memory_low",
        subject="limits",
        title="little memory may be locked",
        seen=("limit {locked_bytes}",),
        why="RDMA locks the memory that it reads and writes; NCCL fails to register its buffers.",
        source=_TROUBLES,
        judge=_locked_memory_low,
    ),
    CheckRow(
        code="open_files_low",
        subject="limits",
        title="few files may be open",
        seen=("limit {num_open_files}",),
        why="Workers share each tensor by a file; many of them end with `too many open files`.",
        source=_SHARING,
        judge=_open_files_low,
    ),
    CheckRow(
        code="stack_small",
        subject="limits",
        title="the stack is small",
        seen=("limit {stack_bytes}",),
        why="Deep recursions of libraries end with a segmentation fault; NVIDIA starts its "
        "containers with 64 MiB.",
        source="https://docs.nvidia.com/deeplearning/frameworks/user-guide/index.html",
        judge=_stack_small,
    ),
    CheckRow(
        code="container_without_gpus",
        subject="container",
        title="the container was started without its GPUs",
        seen=("in {container}", "{num_gpus} GPU(s) of NVIDIA's on the bus, none passed in"),
        why="The machine has GPUs that this container may not use, so the training runs on the "
        "processor. In Kubernetes the plugin nvidia-device-plugin hands out nvidia.com/gpu.",
        source=_TOOLKIT,
        judge=_container_without_gpus,
    ),
)
