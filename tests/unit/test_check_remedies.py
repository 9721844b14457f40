"""Commands that were wrong on somebody's machine, and what stands there now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from steptime.machine.checks.run_checks import judge
from steptime.machine.values.check_facts import CheckFacts, GpuState, Pin, Port, Sshd
from steptime.machine.values.check_values import (
    CheckStatus,
    Disruption,
    MachineCheck,
    MachineSite,
    Runner,
)
from steptime.machine.values.inventory_values import Mount
from unit.check_cases import (
    ACTIVE,
    CASES,
    CUDA_RANK,
    FILES,
    GPU_STATE,
    HERE,
    NODES,
    NVLINK,
    SLOW,
    limited,
    make_facts,
    make_gpu,
    make_log,
    make_run,
    make_software,
    make_space,
    make_system,
    on_gpu,
    with_variable,
    without_driver,
)

SHARED = MachineSite(num_others=3)
OLDER = make_software(torch="2.8.0+cu128")  # before torchrun bound to nodes


def check(code: str, facts: CheckFacts) -> MachineCheck:
    return next(one for one in judge(facts) if one.code == code)


def lines(code: str, facts: CheckFacts) -> list[str]:
    return [command.line for command in check(code, facts).commands]


def advice(code: str, facts: CheckFacts) -> str:
    return " ".join(check(code, facts).advice)


def in_job(facts: CheckFacts, **variables: str) -> CheckFacts:
    return with_variable(facts, SLURM_JOB_ID="7", **variables)


# -- GPUs


LOWERED = replace(
    GPU_STATE, power_limit_w=500.0, requested_power_limit_w=500.0, max_power_limit_w=700.0
)


def test_a_limit_that_the_driver_was_told_can_be_told_again() -> None:
    found = check("power_limit_lowered", on_gpu(state=LOWERED))

    assert [one.line for one in found.commands] == ["sudo nvidia-smi -i 0 -pl 700"]
    assert found.commands[0].who is Runner.ADMINISTRATOR
    assert found.commands[0].disrupts is Disruption.MACHINE


@pytest.mark.parametrize(
    "facts",
    [
        on_gpu(state=replace(LOWERED, requested_power_limit_w=700.0)),
        on_gpu(state=replace(LOWERED, requested_power_limit_w=None)),
        on_gpu(state=replace(LOWERED, max_power_limit_w=600.0)),
        on_gpu(state=LOWERED, site=SHARED),
        on_gpu(state=LOWERED, system=make_system(gpu_settings_at_start=("/etc/cron.d/gpu-power",))),
        in_job(on_gpu(state=LOWERED)),
    ],
    ids=["other controller", "not told", "above the most", "shared", "set at start", "in a job"],
)
def test_a_cap_of_the_sites_is_not_lifted(facts: CheckFacts) -> None:
    found = check("power_limit_lowered", facts)

    assert found.status is CheckStatus.FIRES
    assert found.commands == ()
    assert "ask whoever administers the machine" in found.advice[0]


@pytest.mark.parametrize(
    ("state", "site", "what"),
    [
        ({"clock_mhz": 1200}, MachineSite(), "--reset-applications-clocks"),
        ({"held_down": ("clock_setting",)}, MachineSite(), "--reset-gpu-clocks"),
        ({"clock_mhz": 1200}, SHARED, "-q -d CLOCK"),
    ],
)
def test_clocks_are_reset_by_what_set_them_or_only_shown(
    state: dict[str, object], site: MachineSite, what: str
) -> None:
    facts = on_gpu(state=replace(GPU_STATE, **state), site=site)  # type: ignore[arg-type]

    assert len(lines("clocks_set_low", facts)) == 1
    assert what in lines("clocks_set_low", facts)[0]


IDLE = replace(GPU_STATE, num_processes=0)


@pytest.mark.parametrize(
    ("state", "is_reset", "words"),
    [
        (replace(IDLE, rows_pending=True), True, "replaced by the reset"),
        (replace(IDLE, num_ever=1), False, "No row waits for a reset"),
        (replace(IDLE, num_uncorrected=1), False, "No row waits for a reset"),
        (replace(IDLE, num_uncorrected=1, rows_pending=None), False, "retires pages"),
        (replace(IDLE, rows_pending=True, num_processes=1), False, "not before its trainings"),
        (replace(IDLE, rows_pending=True, busy_fraction=0.9), False, "not before its trainings"),
        (replace(IDLE, rows_pending=True, num_processes=None), False, "not before its trainings"),
        (replace(IDLE, rows_failed=True, rows_pending=True), False, "vendor replaces it"),
    ],
)
def test_only_an_idle_gpu_whose_rows_wait_is_reset(
    state: GpuState, *, is_reset: bool, words: str
) -> None:
    found = check("memory_errors", on_gpu(state=state))

    resets = [one for one in found.commands if "--gpu-reset" in one.line]
    assert bool(resets) == is_reset
    assert all(one.disrupts is Disruption.TRAININGS for one in resets)
    assert words in found.advice[0]


def test_a_gpu_with_nvlinks_is_not_reset_alone() -> None:
    facts = on_gpu(make_gpu(), make_gpu(1), state=replace(IDLE, rows_pending=True), links=NVLINK)

    assert not any("--gpu-reset" in line for line in lines("memory_errors", facts))


def test_while_others_work_here_no_gpu_is_reset() -> None:
    facts = on_gpu(state=replace(IDLE, rows_pending=True), site=SHARED)

    assert not any("--gpu-reset" in line for line in lines("memory_errors", facts))
    assert "3 other users are at work here too" in advice("memory_errors", facts)


def test_gpus_that_a_job_was_not_given_stay_hidden() -> None:
    hidden = on_gpu(make_gpu(), make_gpu(1))

    found = check("gpus_hidden", in_job(hidden, CUDA_VISIBLE_DEVICES=""))

    assert found.status is CheckStatus.FIRES
    assert found.commands == ()
    assert "--gpus-per-node" in found.advice[0]
    for site, words in ((SHARED, "that no one works on"), (MachineSite(), "nothing of yours")):
        partly = with_variable(replace(hidden, site=site), CUDA_VISIBLE_DEVICES="0")
        assert lines("gpus_hidden", partly) == ["nvidia-smi"]
        assert words in advice("gpus_hidden", partly)


# -- the driver


def test_a_driver_whose_module_is_not_loaded_is_not_installed_once_more() -> None:
    facts = without_driver("nvml_error_9")

    assert lines("driver_missing", facts) == ["dkms status"]
    assert "its module is not in the kernel" in advice("driver_missing", facts)


@pytest.mark.parametrize(
    ("os_id", "line"),
    [
        ("ubuntu", "ubuntu-drivers list --gpgpu"),
        ("debian", "apt-cache policy nvidia-driver"),
        ("rocky", "dnf list --showduplicates 'cuda-drivers*' 'nvidia-driver*'"),
        ("arch", None),
    ],
)
def test_drivers_that_can_be_had_are_listed_and_none_is_installed(
    os_id: str, line: str | None
) -> None:
    facts = without_driver(system=make_system(os_id=os_id))

    assert lines("driver_missing", facts) == ([line] if line else [])
    assert "while nothing uses the GPUs" in advice("driver_missing", facts)


def test_a_machine_that_others_work_on_is_not_restarted() -> None:
    facts = CASES["driver_silent"].fires

    assert "sudo reboot" in lines("driver_silent", facts)
    assert "sudo reboot" not in lines("driver_silent", replace(facts, site=SHARED))
    assert "sudo reboot" not in lines("driver_silent", in_job(facts))
    drained = replace(
        facts, site=MachineSite(scheduler="slurm", serves_jobs=True, is_root=True, num_others=0)
    )
    assert "sudo reboot" in lines("driver_silent", drained)
    assert "Drain the node first" in advice("driver_silent", drained)


# -- torch


def test_a_v100_gets_no_newer_torch_that_dropped_it() -> None:
    software = make_software(architectures=("sm_75", "sm_80", "sm_90"))
    v100 = on_gpu(make_gpu(compute_capability="7.0"), software=software)

    found = lines("architecture_not_built", v100)

    assert found == [
        "/opt/env/bin/python -m pip install torch==2.13.0+cu126"
        " --index-url https://download.pytorch.org/whl/cu126"
    ]
    assert "--upgrade" not in found[0]


@pytest.mark.parametrize(
    ("fields", "variables", "line"),
    [
        (
            {"cudnn_folders": ("/usr/local/cudnn",)},
            {"LD_LIBRARY_PATH": "/usr/local/cudnn:/opt/mpi/lib"},
            "export LD_LIBRARY_PATH=/opt/mpi/lib",
        ),
        (
            {"cudnn_folders": ("/apps/cudnn/8",)},
            {"LD_LIBRARY_PATH": "/apps/cudnn/8", "LOADEDMODULES": "gcc/12:cudnn/8.9"},
            "module unload cudnn/8.9",
        ),
        (
            {"pins": (Pin(name="nvidia-cudnn-cu13", wanted="9.10.0", installed="8.9.2"),)},
            {},
            "/opt/env/bin/python -m pip install nvidia-cudnn-cu13==9.10.0",
        ),
        ({}, {}, "ldconfig -p | grep libcudnn"),
    ],
)
def test_the_other_cudnn_is_taken_away_and_nothing_else(
    fields: dict[str, object], variables: dict[str, str], line: str
) -> None:
    software = make_software(cudnn_here=(8, 9, 2), **fields)

    assert lines("cudnn_differs", with_variable(on_gpu(software=software), **variables)) == [line]


# -- cores and nodes


@pytest.mark.parametrize(
    ("gpu", "line"),
    [
        (make_gpu(numa_node=1, cpus="4-7"), "numactl --cpunodebind=1 --preferred=1"),
        (make_gpu(cpus="4-7"), "numactl --cpunodebind=1 --preferred=1"),
        (make_gpu(), None),
        (make_gpu(numa_node=2, cpus="8-11"), None),
    ],
)
def test_a_training_is_bound_to_the_node_of_its_gpu(gpu: object, line: str | None) -> None:
    facts = on_gpu(gpu, numa=NODES, software=OLDER)  # type: ignore[arg-type]

    found = lines("affinity_across_nodes", facts)

    assert found == ([] if line is None else [f"{line} python train.py"])
    assert line or "Bind each process" in advice("affinity_across_nodes", facts)


@pytest.mark.parametrize(
    ("site", "num_ranks", "num"),
    [
        (MachineSite(), None, "gpu"),
        (MachineSite(scheduler="slurm", in_job=True), None, "gpu"),
        (SHARED, None, None),
        (SHARED, 2, "2"),
    ],
)
def test_no_more_processes_are_started_than_there_are_gpus_for_them(
    site: MachineSite, num_ranks: int | None, num: str | None
) -> None:
    run = None if num_ranks is None else make_run(ranks=(CUDA_RANK,), num_ranks=num_ranks)
    facts = on_gpu(make_gpu(), make_gpu(1), numa=NODES, run=run, site=site)

    found = lines("affinity_across_nodes", facts)

    line = f"torchrun --numa-binding=node --nproc-per-node {num} train.py"
    assert found == ([] if num is None else [line])


def test_several_gpus_and_containers_get_no_single_node() -> None:
    near = make_gpu(numa_node=1, cpus="4-7")
    several = on_gpu(near, make_gpu(1, numa_node=0, cpus="0-3"), numa=NODES, software=OLDER)
    inside = on_gpu(near, numa=NODES, software=OLDER, limits=limited(container="docker"))

    for facts in (several, inside):
        assert lines("affinity_across_nodes", facts) == []


FAR = make_gpu(cpus="4-7")


@pytest.mark.parametrize(
    ("cpuset", "variables", "line"),
    [
        ("0-7", {}, "taskset --cpu-list 4-7 python train.py"),
        ("0-5", {}, "taskset --cpu-list 4-5 python train.py"),
        ("0-3", {}, None),
        (None, {}, None),
        ("0-7", {"SLURM_JOB_ID": "7"}, None),
    ],
)
def test_nobody_leaves_the_cores_that_were_handed_out(
    cpuset: str | None, variables: dict[str, str], line: str | None
) -> None:
    facts = on_gpu(FAR, limits=limited(cpus="0-3"), system=make_system(cpuset=cpuset))

    found = lines("cores_far_from_gpu", with_variable(facts, **variables))

    assert found == ([] if line is None else [line])


def test_a_job_asks_its_scheduler_for_cores_near_the_gpu() -> None:
    facts = on_gpu(FAR, limits=limited(cpus="0-3"), system=make_system(cpuset="0-3"))

    assert "--gpu-bind=closest" in advice("cores_far_from_gpu", in_job(facts))


def test_threads_of_a_task_fit_its_cores_and_places_are_its_own() -> None:
    facts = CASES["threads_over_cores"].fires
    run = make_facts(run=make_run(num_ranks=2))

    assert lines("threads_over_cores", in_job(facts, SLURM_CPUS_PER_TASK="4")) == [
        "export OMP_NUM_THREADS=4"
    ]
    assert check("threads_pinned_alike", with_variable(run, OMP_PLACES="cores")).status is (
        CheckStatus.FIRES
    )
    assert check("threads_pinned_alike", in_job(run, OMP_PLACES="cores")).status is (
        CheckStatus.CLEAN
    )


def test_load_of_cores_that_are_not_ours_tells_nothing() -> None:
    facts = make_facts(system=make_system(others_cores=6.0), limits=limited(cpus="0-3"))

    assert check("spin_waiting", facts).reason == "load_of_other_cores"


# -- network


def test_nccl_chooses_among_eight_adapters_by_itself() -> None:
    eight = tuple(replace(ACTIVE, name=f"mlx5_{i}") for i in range(8))
    facts = make_facts(rdma=eight, system=FILES, nccl_log=make_log(network="Socket"))

    assert lines("rdma_unused", facts) == ["ibv_devinfo"]
    assert "chooses among the devices by itself" in advice("rdma_unused", facts)
    named = with_variable(facts, NCCL_IB_HCA="mlx5_0")
    assert lines("rdma_unused", named) == ["unset NCCL_IB_HCA"]


def test_what_the_site_sets_for_everybody_is_not_unset() -> None:
    system = make_system(site_variables={"NCCL_P2P_DISABLE": "/etc/profile.d/nccl.sh"})
    mine, sites = on_gpu(), on_gpu(system=system)

    own = with_variable(mine, NCCL_P2P_DISABLE="1")
    assert lines("peer_access_disabled", own) == ["unset NCCL_P2P_DISABLE"]
    assert "get around a fault" in advice("peer_access_disabled", own)
    of_site = with_variable(sites, NCCL_P2P_DISABLE="1")
    assert lines("peer_access_disabled", of_site) == []
    assert "/etc/profile.d/nccl.sh sets NCCL_P2P_DISABLE" in advice("peer_access_disabled", of_site)


def test_peers_that_no_variable_forbids_are_not_unset() -> None:
    facts = CASES["peers_through_host"].fires

    assert lines("peers_through_host", facts) == ["nvidia-smi topo -p2p r"]
    assert "virtual machine" in advice("peers_through_host", facts)
    assert lines("peers_through_host", with_variable(facts, NCCL_P2P_DISABLE="1"))[0] == (
        "unset NCCL_P2P_DISABLE"
    )


# -- files, limits


def test_a_tree_on_a_server_is_not_walked() -> None:
    full = make_space(folder="/data/it's", free_bytes=1)
    mounts = (Mount(folder="/data", kind="lustre", source="s", is_network=True),)
    local = make_facts(system=make_system(spaces=(full,)))
    remote = make_facts(system=make_system(spaces=(full,)), mounts=mounts)

    assert "du -xh --max-depth=2 '/data/it'\"'\"'s'" in lines("disk_nearly_full", local)[0]
    assert lines("disk_nearly_full", remote)[0].startswith("df -h ")
    assert "quota" in advice("disk_nearly_full", remote)


def test_a_hard_limit_of_the_stack_is_said() -> None:
    low = limited(stack_bytes=1 << 20)

    assert lines("stack_small", make_facts(limits=low)) == ["ulimit -s 65536"]
    fixed = make_facts(limits=low, system=make_system(stack_hard_bytes=1 << 20))
    assert lines("stack_small", fixed) == []
    assert "hard limit" in advice("stack_small", fixed)


# -- SSH and ports


OWN = MachineSite(num_others=0, num_accounts=1)
SSHD = Sshd(file="/etc/ssh/sshd_config", has_drop_ins=True, has_own_key=True)
LISTENS = (Port(number=22, is_local=False),)


@pytest.mark.parametrize(
    ("site", "sshd", "is_offered"),
    [
        (OWN, SSHD, True),
        (OWN, replace(SSHD, has_own_key=False), False),
        (replace(OWN, num_accounts=2), SSHD, False),
        (replace(OWN, num_accounts=None), SSHD, False),
        (replace(OWN, num_others=1), SSHD, False),
        (replace(OWN, scheduler="slurm"), SSHD, False),
    ],
)
def test_passwords_are_forbidden_only_where_that_locks_nobody_out(
    site: MachineSite, sshd: Sshd, *, is_offered: bool
) -> None:
    facts = make_facts(ports=LISTENS, sshd=sshd, site=site)

    found = lines("ssh_passwords", facts)

    assert any("PasswordAuthentication no" in line for line in found) == is_offered
    assert is_offered or "locks people out" in advice("ssh_passwords", facts)


def test_the_server_is_reloaded_by_the_name_that_the_distribution_gives_it() -> None:
    for os_id, name in (("debian", "ssh"), ("rocky", "sshd")):
        facts = make_facts(ports=LISTENS, sshd=SSHD, site=OWN, system=make_system(os_id=os_id))
        assert lines("ssh_passwords", facts)[1] == f"sudo sshd -t && sudo systemctl reload {name}"


def test_a_port_at_which_a_training_meets_is_not_closed() -> None:
    ports = (Port(number=29500, is_local=False), Port(number=6006, is_local=False))
    facts = make_facts(ports=ports)

    found = check("ports_open", facts)

    assert [one.line for one in found.commands] == [
        "sudo ss -ltnp '( sport = :6006 or sport = :29500 )'"
    ]
    assert found.commands[0].who is Runner.ROOT
    assert "Ranks of a training meet there" in found.advice[0]
    assert "ssh -L" in found.advice[1]


# -- where


def test_outside_of_the_jobs_of_a_scheduler_nothing_trains() -> None:
    facts = CASES["default_allocator"].fires

    assert lines("default_allocator", facts)[0].startswith("steptime tune")
    for site in (
        MachineSite(scheduler="slurm"),
        MachineSite(scheduler="slurm", serves_jobs=True, is_root=True),
    ):
        outside = replace(facts, site=site)
        assert lines("default_allocator", outside) == []
        assert "try it in a job" in advice("default_allocator", outside)


def test_packages_of_a_shared_node_are_not_changed_by_root() -> None:
    facts = CASES["cpu_build_beside_gpu"].fires

    assert lines("cpu_build_beside_gpu", replace(facts, site=MachineSite(is_root=True)))
    shared = replace(facts, site=replace(SHARED, is_root=True))
    assert lines("cpu_build_beside_gpu", shared) == []


def test_packages_that_another_one_may_want_are_asked_after() -> None:
    facts = CASES["cuda_packages_differ"].fires

    assert lines("cuda_packages_differ", facts) == ["/opt/env/bin/python -m pip check"]
    assert "`nvidia-nccl-cu13==2.27.5`" in advice("cuda_packages_differ", facts)


def test_a_container_does_not_know_who_set_clocks() -> None:
    facts = on_gpu(state=replace(GPU_STATE, clock_mhz=1200), limits=limited(container="docker"))

    assert lines("clocks_set_low", facts) == ["nvidia-smi -q -d CLOCK -i 0"]


def test_gpu_direct_has_two_ways_and_neither_is_taken_here() -> None:
    facts = CASES["no_gpu_direct"].fires

    assert all("modprobe" not in line for line in lines("no_gpu_direct", facts))
    assert "DMA-BUF" in advice("no_gpu_direct", facts)


def test_what_root_does_in_a_container_is_for_the_host() -> None:
    facts = on_gpu(limits=limited(container="docker"), state=replace(GPU_STATE, persistence=False))

    found = check("persistence_off", facts)

    assert found.commands[0].place.value == "host"
    pod = replace(facts, inventory=replace(facts.inventory, limits=limited(container="kubernetes")))
    assert lines("persistence_off", pod) == []
    assert "report it to its administrators" in advice("persistence_off", pod)


def test_a_quiet_machine_needs_no_remedy() -> None:
    assert all(not one.commands and not one.advice for one in judge(HERE))
    assert SLOW.is_hardware
