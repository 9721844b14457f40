"""Checks GPUs as others left them: a slow link, memory that is taken, NVLinks, NVSwitches, MIG.

In: facts. Out: judgements.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from steptime.diagnose.values.finding import Severity
from steptime.machine.checks.check_row import (
    FAILURE,
    CheckRow,
    Judgement,
    Value,
    asked_gpus,
    clean,
    driven_gpus,
    fires,
    not_applicable,
    not_checked,
    own_gpus,
)
from steptime.machine.checks.gpu.gpu_log_checks import failed_gpus
from steptime.machine.checks.remedy import in_shell, look, look_as_root
from steptime.machine.values.check_facts import CheckFacts, GpuState
from steptime.machine.values.check_values import Certainty, Command, Cost
from steptime.machine.values.inventory_values import Gpu
from steptime.machine.values.node_facts import GpuProcess

_SMI = "https://docs.nvidia.com/deploy/nvidia-smi/index.html"
_MIG = "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/"
_FABRIC = "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html"
_NVLINK = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"

_LANE_GB_PER_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""Of a lane in one direction, after its coding, by generation (PCI Express Base Specification)."""

_MIN_BUSY = 0.1
"""A GPU that does less may let its link train down, which costs nothing."""

_TAKEN_BYTES = 2 << 30
"""A context, and what the driver keeps for itself, stay below it."""
_TAKEN_FRACTION = 0.05

_LINKS = Cost(
    of="peers",
    low=1.0,
    high=8.2,
    source="https://github.com/stas00/ml-engineering/tree/master/network "
    "(450 GB/s of NVLink against 55 GB/s reached over PCIe 5, H100)",
)


def _slow_link(facts: CheckFacts) -> Judgement:
    asked = asked_gpus(facts)
    if isinstance(asked, partial):
        return asked
    gpus = [gpu for gpu in asked if gpu.pcie_generation and gpu.max_pcie_generation]
    if not gpus:
        return not_checked("not_told")
    slow = [gpu for gpu in gpus if (gpu.pcie_generation or 0) < (gpu.max_pcie_generation or 0)]
    if not slow:
        return clean({"generation": min(gpu.pcie_generation or 0 for gpu in gpus)})
    # Link and load are of the same moment: the inventory read both.
    loaded = [gpu for gpu in slow if (gpu.busy_fraction or 0.0) >= _MIN_BUSY]
    if not loaded:
        return not_checked("links_rest")
    worst = max(loaded, key=_times_slower)
    return fires(
        Severity.WARNING,
        Certainty.CERTAIN,
        seen={
            "gpus": _list(loaded),
            "generation": worst.pcie_generation or 0,
            "max_generation": worst.max_pcie_generation or 0,
            "busy_fraction": worst.busy_fraction or 0.0,
        },
        cost=Cost(
            of="copies", low=1.0, high=round(_times_slower(worst), 1), source="rates of the links"
        ),
        commands=(
            look(f"nvidia-smi -q -i {_list(loaded)} | grep -A 10 'GPU Link Info'"),
            look_as_root(f"sudo lspci -vv -s {worst.bus_id} | grep -E 'LnkCap|LnkSta'"),
        ),
        advice=(
            "A setting of the firmware, a riser or the card's seat holds the link down: a matter "
            "for whoever looks after the hardware.",
        ),
    )


def _times_slower(gpu: Gpu) -> float:
    now = _LANE_GB_PER_S.get(gpu.pcie_generation or 0)
    best = _LANE_GB_PER_S.get(gpu.max_pcie_generation or 0)
    return best / now if now and best else 1.0


def _list(gpus: Sequence[Gpu | GpuState]) -> str:
    return ",".join(str(gpu.index) for gpu in gpus)


def _states(facts: CheckFacts) -> tuple[GpuState, ...] | Judgement:
    """Return the states of the GPUs that this shell may use, or why there are none."""
    asked = asked_gpus(facts)
    if isinstance(asked, partial):
        return asked
    if not facts.gpu_states:
        return not_checked("driver_gave_no_answer")
    own = {gpu.index for gpu in own_gpus(facts)}
    return tuple(state for state in facts.gpu_states if state.index in own)


def _memory_taken(facts: CheckFacts) -> Judgement:
    asked = asked_gpus(facts)
    if isinstance(asked, partial):
        return asked
    # Of a divided GPU others have instances of their own.
    divided = {state.index for state in facts.gpu_states if state.mig}
    gpus = [
        gpu
        for gpu in own_gpus(facts)
        if gpu.used_bytes is not None and gpu.memory_bytes and gpu.index not in divided
    ]
    if not gpus:
        return not_applicable("divided_gpu") if divided else not_checked("not_told")
    taken = [gpu for gpu in gpus if _is_taken(gpu)]
    if not taken:
        return clean({"used_bytes": max(gpu.used_bytes or 0 for gpu in gpus)})
    processes = _processes_on(facts, taken)
    if processes and all(one.is_ours for one in processes):
        return _taken_by_us(taken, processes)
    strangers = [one for one in processes if one.is_ours is False]
    worst = max(taken, key=lambda gpu: gpu.used_bytes or 0)
    seen: dict[str, Value] = {
        "gpus": _list(taken),
        "used_bytes": worst.used_bytes or 0,
        "memory_bytes": worst.memory_bytes or 0,
    }
    if strangers:
        seen["num_processes"] = len(strangers)
    else:
        seen["unseen"] = "processes that cannot be seen from here"
    free = [gpu for gpu in gpus if gpu not in taken and not _is_unfit(gpu, facts)]
    # Outside of a job it is a job that uses the GPU, as it should.
    is_handed_out = facts.site.scheduler is not None and not facts.site.in_job
    # A container does not see whose the processes are: they may be its own training's.
    is_unsure = is_handed_out or facts.inventory.limits.container is not None
    sure = Certainty.CERTAIN if strangers else Certainty.LIKELY
    return fires(
        Severity.INFO if is_unsure else Severity.WARNING,
        Certainty.POSSIBLE if is_unsure else sure,
        seen=seen,
        cost=FAILURE,
        commands=_around(facts, free),
        advice=(_who_takes(facts),),
    )


def _is_taken(gpu: Gpu) -> bool:
    used, total = gpu.used_bytes or 0, gpu.memory_bytes or 1
    return used >= _TAKEN_BYTES and used >= _TAKEN_FRACTION * total


def _is_unfit(gpu: Gpu, facts: CheckFacts) -> bool:
    """Return whether another check says of the GPU that one does not train on it."""
    whole = [state for state in facts.gpu_states if not state.mig]
    names = {one.index: one.name for one in driven_gpus(facts)}
    states = [state for state in whole if state.index == gpu.index]
    lacks_links = any(_links_missing(state, whole, names) for state in states)
    return lacks_links or gpu.bus_id in failed_gpus(facts)


def _processes_on(facts: CheckFacts, gpus: Sequence[Gpu]) -> list[GpuProcess]:
    wanted = {gpu.index for gpu in gpus}
    states = [state for state in facts.gpu_states if state.index in wanted]
    return [one for state in states for one in state.processes or ()]


def _taken_by_us(taken: Sequence[Gpu], processes: Sequence[GpuProcess]) -> Judgement:
    pids = ",".join(str(pid) for pid in sorted({one.pid for one in processes}))
    worst = max(taken, key=lambda gpu: gpu.used_bytes or 0)
    return fires(
        Severity.INFO,
        Certainty.POSSIBLE,
        seen={
            "gpus": _list(taken),
            "used_bytes": worst.used_bytes or 0,
            "memory_bytes": worst.memory_bytes or 0,
            "pids": pids,
        },
        cost=FAILURE,
        commands=(look(f"ps -o pid,etime,stat,args -p {pids}"),),
        advice=("They are yours: a training that runs now, or one that was left behind.",),
    )


def _around(facts: CheckFacts, free: Sequence[Gpu]) -> tuple[Command, ...]:
    """Return how to train on the others; a scheduler hands out GPUs itself."""
    show = look("nvidia-smi -q -d PIDS,MEMORY")
    if facts.site.scheduler is not None or not free:
        return (show,)
    return (show, in_shell(f"export CUDA_VISIBLE_DEVICES={_list(free)}"))


def _who_takes(facts: CheckFacts) -> str:
    if facts.site.scheduler is not None and not facts.site.in_job:
        return "The scheduler hands out these GPUs: a job may use them now."
    if facts.inventory.limits.container is not None:
        return (
            "A container does not see whose processes they are: a training of yours, or somebody "
            "else's on the same GPU."
        )
    if facts.site.scheduler is not None:
        return (
            "The scheduler gave this GPU to your job, and something outside of the job holds its "
            "memory: report node and GPU to the cluster's administrators."
        )
    return "Agree with whoever uses it, or wait for the end: ending it is not yours to decide."


def _nvlink_down(facts: CheckFacts) -> Judgement:
    states = _states(facts)
    if isinstance(states, partial):
        return states
    if len(driven_gpus(facts)) < 2:
        return not_applicable("one_gpu")
    told = [state for state in facts.gpu_states if state.nvlinks_up is not None]
    if not told:
        return not_applicable("no_nvlink")
    names = {gpu.index: gpu.name for gpu in driven_gpus(facts)}
    # In MIG mode a GPU talks to no other one, and its links rest.
    whole = [state for state in told if not state.mig]
    if not whole:
        return not_applicable("mig_rests_links")
    lacking = [state for state in whole if _links_missing(state, whole, names)]
    most = max(state.nvlinks_up or 0 for state in whole)
    if not lacking:
        return clean({"links_of_each": most}) if most else not_applicable("no_nvlink")
    worst = min(lacking, key=lambda state: state.nvlinks_up or 0)
    is_off = not worst.nvlinks_up
    return fires(
        Severity.CRITICAL if is_off else Severity.WARNING,
        Certainty.LIKELY,
        seen={"gpus": _list(lacking), "num_up": worst.nvlinks_up or 0, "num_links": most},
        cost=_LINKS if is_off else None,
        commands=(
            look(f"nvidia-smi nvlink -s -i {_list(lacking)}"),
            look(f"nvidia-smi nvlink -e -i {_list(lacking)}"),
            look_as_root("sudo dmesg -T | grep -iE 'xid|sxid|nvlink' | tail -20"),
        ),
        advice=(
            "A restart of the machine sets the links up again; where one stays down, bridge, board "
            "or GPU are a case for the vendor. Until then train without this GPU.",
        ),
    )


def _links_missing(
    state: GpuState, states: Sequence[GpuState], names: dict[int, str | None]
) -> bool:
    """Return whether it is one of the few of its kind with fewer active links than the others.

    Where half of them or more have fewer, bridges between pairs of cards explain it.
    """
    alike = [one for one in states if names.get(one.index) == names.get(state.index)]
    most = max(one.nvlinks_up or 0 for one in alike)
    lacking = [one for one in alike if (one.nvlinks_up or 0) < most]
    return state in lacking and 2 * len(lacking) < len(alike)


def _fabric_not_ready(facts: CheckFacts) -> Judgement:
    states = _states(facts)
    if isinstance(states, partial):
        return states
    told = [s for s in states if s.fabric not in (None, "not_supported")]
    fabric = facts.node.fabric
    num = 0 if fabric is None else fabric.num_switches
    bad = [state for state in told if state.fabric != "completed"]
    if bad:
        return fires(
            Severity.CRITICAL,
            Certainty.CERTAIN,
            seen={"gpus": _list(bad), "state": (bad[0].fabric or "").replace("_", " ")},
            cost=FAILURE,
            commands=_manager_looks(),
            advice=(_START_MANAGER,),
        )
    if told:
        return clean({"state": "completed"})
    if fabric is None:
        return not_checked(facts.missing.get("fabric", "not_told"))
    if not num:
        return not_applicable("no_nvswitch")
    if fabric.is_managed is None:
        return not_checked("processes_hidden")
    seen: dict[str, Value] = {"num_switches": num}
    if fabric.is_managed:
        return clean(seen)
    blind = facts.software is not None and facts.software.num_devices == 0
    return fires(
        Severity.CRITICAL if blind else Severity.WARNING,
        Certainty.LIKELY,
        seen={**seen, "absent": "no fabric manager runs"},
        cost=FAILURE,
        commands=_manager_looks(),
        advice=(_START_MANAGER,),
    )


_START_MANAGER = (
    "The administrator starts the service nvidia-fabricmanager of the driver's exact version while "
    "no GPU is in use; starting it again ends the programs on all GPUs."
)


def _manager_looks() -> tuple[Command, ...]:
    return (
        look("systemctl status nvidia-fabricmanager --no-pager"),
        look("nvidia-smi -q | grep -A 3 -w Fabric"),
    )


def _mig_on(facts: CheckFacts) -> Judgement:
    states = _states(facts)
    if isinstance(states, partial):
        return states
    told = [state for state in states if state.mig is not None]
    if not told:
        return not_applicable("no_mig")
    waiting = [s for s in told if s.mig_pending is not None and s.mig_pending != s.mig]
    on = [state for state in told if state.mig]
    if not on and not waiting:
        return clean({"num_gpus": len(told)})
    if facts.environment.get("CUDA_VISIBLE_DEVICES", "").startswith("MIG-") and not waiting:
        return clean({"chosen": "an instance is chosen"})
    seen: dict[str, Value] = {}
    if on:
        seen["gpus"] = _list(on)
    if waiting:
        seen["waiting"] = _list(waiting)
    run = facts.run.measurement if facts.run is not None else None
    is_felt = bool(waiting) or (run is not None and run.num_ranks > 1)
    return fires(
        Severity.WARNING if is_felt else Severity.INFO,
        Certainty.LIKELY if is_felt else Certainty.POSSIBLE,
        seen=seen,
        commands=(look("nvidia-smi -L"), look("nvidia-smi -q | grep -A 2 'MIG Mode'")),
        advice=(
            "To leave MIG mode ends the instances and all programs on the GPU, so that is for "
            "whoever divided it; under a scheduler, ask for a whole GPU.",
        ),
    )


CHECKS = (
    CheckRow(
        code="pcie_link_slow",
        subject="devices",
        title="a GPU's PCIe link runs at a lower generation under load",
        seen=(
            "GPU {gpus}",
            "generation {generation} of {max_generation}",
            "while it was busy for {busy_fraction} of the time",
        ),
        why="Copies from and to the host, and between GPUs without NVLink, take longer in "
        "proportion. A link that rests trains down and up again, so only a busy GPU is judged.",
        source=f"{_SMI} (PCIe generation)",
        judge=_slow_link,
    ),
    CheckRow(
        code="gpu_memory_taken",
        subject="devices",
        title="a GPU's memory is taken",
        seen=(
            "GPU {gpus}",
            "{used_bytes} of {memory_bytes} in use",
            "by {num_processes} process(es) of other users",
            "by {unseen}",
            "by your process(es) {pids}",
        ),
        why="A training ends without memory on a GPU that others fill, and shares its time with "
        "them; one slow GPU holds up all ranks.",
        source=f"{_SMI} (processes)",
        judge=_memory_taken,
    ),
    CheckRow(
        code="nvlink_down",
        subject="devices",
        title="a GPU has fewer NVLinks than its neighbours",
        seen=("GPU {gpus}", "{num_up} of {num_links} links are up", "{links_of_each} links each"),
        why="NCCL's rings pass through every GPU: one without NVLink sends them all over PCIe.",
        source=_NVLINK,
        judge=_nvlink_down,
    ),
    CheckRow(
        code="fabric_not_ready",
        subject="devices",
        title="the NVSwitches are not set up",
        seen=("GPU {gpus}", "fabric {state}", "{num_switches} NVSwitches", "{absent}"),
        why="Without the fabric manager CUDA does not start on such a machine (error 802), or "
        "GPUs do not reach each other.",
        source=_FABRIC,
        judge=_fabric_not_ready,
    ),
    CheckRow(
        code="mig_on",
        subject="devices",
        title="GPUs are divided into instances (MIG)",
        seen=("GPU {gpus}", "GPU {waiting} changes its mode at the next reset", "{chosen}"),
        why="A process uses one instance, which has a part of the GPU's cores and memory; between "
        "instances there is neither NVLink nor peer access.",
        source=_MIG,
        judge=_mig_on,
    ),
)
