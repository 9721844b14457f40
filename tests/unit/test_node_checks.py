"""The checks of a node, where their answer turns: age, load, whose it is, who hands it out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from steptime.diagnose.values.finding import Severity
from steptime.machine.checks.run_checks import judge
from steptime.machine.values.check_facts import CheckFacts
from steptime.machine.values.check_values import CheckStatus, MachineCheck, MachineSite
from steptime.machine.values.node_facts import (
    CpuClock,
    Fabric,
    GpuProcess,
    KernelLog,
    PciPath,
    PeerMemory,
    ProcessRoom,
)
from unit.check_cases import GPU_STATE, HERE, make_facts, make_gpu, make_log, on_gpu, with_variable
from unit.node_cases import (
    LOCAL_TMP,
    NARROW,
    NETWORK_CACHE,
    NODE_CASES,
    NVLINKED,
    PORT,
    QUEUES,
    RDMA,
    STRANGER,
    logged,
    on_bare_metal,
    slow_pcie,
    taken,
    with_node,
    with_states,
    xid,
)

DAY = 86_400.0


def check(code: str, facts: CheckFacts) -> MachineCheck:
    return next(one for one in judge(facts) if one.code == code)


@pytest.mark.parametrize("code", NODE_CASES)
def test_what_cannot_be_read_is_not_called_fine(code: str) -> None:
    bare = on_gpu(make_gpu(), make_gpu(1))
    bare = replace(bare, environment={"SLURM_NNODES": "2"})
    known = {"gpu_off_the_bus"}  # the driver answers for every GPU

    found = check(code, replace(bare, missing={"kernel_log": "no_right_to_read_the_log"}))

    assert (found.status is CheckStatus.CLEAN) == (code in known), found


# -- the kernel's log


@pytest.mark.parametrize(
    ("code", "num", "age_s", "severity"),
    [
        (95, 1, 60.0, Severity.CRITICAL),
        (95, 1, None, Severity.CRITICAL),
        (95, 1, 2 * DAY, Severity.INFO),
        (94, 1, 60.0, Severity.WARNING),
        (74, 3, 60.0, Severity.CRITICAL),
        (63, 9, 30 * DAY, Severity.INFO),
    ],
)
def test_an_error_weighs_by_its_kind_its_number_and_its_age(
    code: int, num: int, age_s: float | None, severity: Severity
) -> None:
    found = check("gpu_errors_logged", logged(xid(code, num=num, age_s=age_s)))

    assert found.severity is severity
    if severity is Severity.INFO:  # a GPU that has worked since is left alone
        assert found.advice == ()


def test_no_command_resets_a_gpu_for_what_the_log_says() -> None:
    for code in (48, 62, 74, 79, 94, 95, 119):
        for found in judge(logged(xid(code))):
            assert not any("reset" in command.line for command in found.commands)


def test_programs_that_a_failing_gpu_stopped_are_not_blamed() -> None:
    together = logged(xid(48), xid(31), xid(43))
    elsewhere = logged(xid(48), xid(31, bus="3b"))

    assert check("program_errors_logged", together).status is CheckStatus.CLEAN
    assert check("program_errors_logged", elsewhere).status is CheckStatus.FIRES


def test_a_process_that_was_ended_is_no_error() -> None:
    assert check("program_errors_logged", logged(xid(45))).status is CheckStatus.CLEAN
    assert check("gpu_errors_logged", logged(xid(45))).status is CheckStatus.CLEAN


def test_a_gpu_that_came_back_is_a_warning_for_a_day() -> None:
    assert check("gpu_off_the_bus", logged(xid(79))).severity is Severity.WARNING
    assert check("gpu_off_the_bus", logged(xid(79, age_s=3 * DAY))).status is CheckStatus.CLEAN


def test_a_log_that_may_not_be_read_is_unknown() -> None:
    facts = replace(on_gpu(), missing={"kernel_log": "no_right_to_read_the_log"})

    assert check("gpu_errors_logged", facts).reason == "no_right_to_read_the_log"


# -- GPUs


def test_a_link_that_rests_is_not_judged() -> None:
    assert check("pcie_link_slow", slow_pcie(0.0)).reason == "links_rest"
    cost = check("pcie_link_slow", slow_pcie(0.9)).cost
    assert cost is not None
    assert cost.high == 15.8  # 3.938 GB/s a lane of generation 5 over 0.25 of generation 1


def test_memory_that_others_hold_leaves_the_other_gpus() -> None:
    found = check("gpu_memory_taken", taken(STRANGER))

    assert found.certainty == "certain"
    assert "export CUDA_VISIBLE_DEVICES=1" in [command.line for command in found.commands]


def test_memory_that_we_hold_is_a_remark() -> None:
    ours = GpuProcess(pid=12, is_ours=True)

    assert check("gpu_memory_taken", taken(ours)).severity is Severity.INFO


@pytest.mark.parametrize(
    ("in_job", "severity", "words"),
    [(True, Severity.WARNING, "report node and GPU"), (False, Severity.INFO, "hands out")],
)
def test_under_a_scheduler_gpus_are_not_ones_to_choose(
    *, in_job: bool, severity: Severity, words: str
) -> None:
    site = MachineSite(scheduler="slurm", in_job=in_job, serves_jobs=True)
    found = check("gpu_memory_taken", replace(taken(STRANGER), site=site))

    assert found.severity is severity
    assert words in found.advice[0]
    assert not any("export" in command.line for command in found.commands)


def test_a_container_does_not_know_whose_memory_it_is() -> None:
    limits = replace(HERE.inventory.limits, container="docker")
    facts = taken()
    facts = replace(facts, inventory=replace(facts.inventory, limits=limits))

    assert check("gpu_memory_taken", facts).severity is Severity.INFO


@pytest.mark.parametrize("code", [79, 48, 31])
def test_errors_of_other_jobs_gpus_are_theirs(code: int) -> None:
    """The log is the node's: in a job it names GPUs that the job does not have."""
    job = replace(logged(xid(code, bus="99")), site=MachineSite(scheduler="slurm", in_job=True))
    lost = replace(job, inventory=replace(job.inventory, missing={"gpus": "some_do_not_answer"}))

    assert not any(
        found.status is CheckStatus.FIRES for found in judge(job) if "xid" in found.source
    )
    assert any(found.status is CheckStatus.FIRES for found in judge(lost) if "xid" in found.source)


def test_gpus_of_others_are_not_judged_where_a_variable_chooses() -> None:
    facts = with_variable(taken(STRANGER), CUDA_VISIBLE_DEVICES="1")

    assert check("gpu_memory_taken", facts).status is CheckStatus.CLEAN


def test_bridges_between_pairs_of_cards_are_no_fault() -> None:
    pair = with_states(*({"nvlinks_up": 4},) * 2, *({"nvlinks_up": 0},) * 2)

    assert check("nvlink_down", pair).status is CheckStatus.CLEAN


def test_some_links_down_is_a_warning_and_mig_rests_them() -> None:
    full = {"nvlinks_up": 18}
    some = with_states(full, full, full, {"nvlinks_up": 16})
    divided = with_states(full, full, full, {"nvlinks_up": 0, "mig": True})

    assert check("nvlink_down", some).severity is Severity.WARNING
    assert check("nvlink_down", divided).status is CheckStatus.CLEAN


def test_a_manager_that_cannot_be_seen_is_unknown() -> None:
    hidden = with_node(on_gpu(state=GPU_STATE), fabric=Fabric(num_switches=4))

    assert check("fabric_not_ready", hidden).reason == "processes_hidden"


# -- the network


def test_a_slower_port_than_the_chip_is_sold_with_is_a_remark() -> None:
    slow = replace(PORT, rate_bits_per_s=2e11)

    alone = check("rdma_port_slow", with_node(HERE, rdma_ports=(slow,)))
    beside = check("rdma_port_slow", with_node(HERE, rdma_ports=(PORT, slow)))

    assert (alone.severity, alone.cost) == (Severity.INFO, None)
    assert (beside.severity, beside.certainty) == (Severity.WARNING, "likely")
    assert beside.cost is not None
    assert beside.cost.high == 2.0


def test_ports_of_another_kind_are_not_compared() -> None:
    storage = replace(NARROW, kind="MT4119", width=4, speed="EDR")

    assert check("rdma_port_slow", with_node(HERE, rdma_ports=(PORT, storage))).status is (
        CheckStatus.CLEAN
    )


@pytest.mark.parametrize(
    ("state", "physical", "severity"),
    [
        ("INIT", "LinkUp", Severity.WARNING),
        ("DOWN", "Polling", Severity.INFO),
        ("DOWN", "Disabled", None),
    ],
)
def test_a_port_that_is_down_may_be_spare(
    state: str, physical: str, severity: Severity | None
) -> None:
    down = replace(PORT, device="mlx5_3", state=state, physical=physical)

    found = check("rdma_port_not_active", with_node(HERE, rdma_ports=(PORT, down)))

    assert found.severity is severity


def test_packets_count_where_nccl_takes_sockets_between_machines() -> None:
    small = (replace(QUEUES, mtu_bytes=1500),)
    facts = make_facts(nccl_log=make_log(network="Socket"))
    several = with_variable(facts, SLURM_NNODES="4")
    differs = (QUEUES, replace(QUEUES, name="ens2", mtu_bytes=1500))

    found = check("mtu_small", with_node(several, nics=differs))
    alone = check("mtu_small", with_node(HERE, nics=small))

    assert found.severity is Severity.WARNING
    assert alone.severity is Severity.INFO


def test_interrupts_far_from_their_card_are_told() -> None:
    far = replace(QUEUES, interrupts=((40,), (41,)))

    found = check("interrupts_crowded", with_node(HERE, nics=(far,)))

    assert found.seen["how"] == "all far from the card"


@pytest.mark.parametrize(
    ("memory", "status"),
    [
        (PeerMemory(module="nvidia_peermem"), "clean"),
        (PeerMemory(is_open_driver=True, kernel=(5, 15)), "clean"),
        (PeerMemory(is_open_driver=True, kernel=(5, 4)), "fires"),
        (PeerMemory(is_open_driver=False, kernel=(6, 8)), "fires"),
        (PeerMemory(is_open_driver=None, kernel=(6, 8)), "not_checked"),
        (None, "not_checked"),
    ],
)
def test_rdma_reaches_a_gpu_by_a_module_or_by_dma_buf(
    memory: PeerMemory | None, status: str
) -> None:
    facts = with_node(on_gpu(rdma=(RDMA,)), peer_memory=memory)

    assert check("gpu_direct_not_loaded", facts).status == status


def test_a_card_without_a_rule_is_unknown_and_a_log_of_nccl_knows() -> None:
    efa = on_gpu(rdma=(replace(RDMA, name="rdmap0s6"),))
    seen = on_gpu(rdma=(RDMA,), nccl_log=make_log())

    assert check("gpu_direct_not_loaded", efa).reason == "no_rule_for_this_card"
    assert check("gpu_direct_not_loaded", seen).status is CheckStatus.CLEAN


def test_registers_that_root_alone_may_read_are_unknown() -> None:
    facts = with_node(on_bare_metal(), pci=PciPath(num_devices=2, num_bridges=2))

    assert check("peers_redirected", facts).reason == "root_alone_may_read"
    assert check("iommu_translates", facts).reason == "iommu_not_told"


def test_peers_on_nvlink_and_guests_have_no_such_paths() -> None:
    guest = on_gpu(
        *on_bare_metal().inventory.gpus, cpu=replace(HERE.inventory.cpu, is_virtual=True)
    )

    assert check("iommu_translates", on_bare_metal(links=NVLINKED)).reason == "peers_over_nvlink"
    assert check("iommu_translates", guest).reason == "virtual_machine"


def test_a_fatal_error_of_a_switch_is_critical() -> None:
    log = KernelLog(source="dmesg", sxids=(xid(20034, bus="8d"),))

    found = check("gpu_errors_logged", with_node(on_gpu(), kernel_log=log))

    assert found.severity is Severity.CRITICAL
    assert "SXid 20034" in str(found.seen["errors"])


# -- the cores


@pytest.mark.parametrize(
    ("driver", "governor", "preference", "severity"),
    [
        ("acpi-cpufreq", "powersave", None, Severity.WARNING),
        ("intel_cpufreq", "powersave", None, Severity.WARNING),
        ("acpi-cpufreq", "schedutil", None, Severity.INFO),
        ("acpi-cpufreq", "performance", None, None),
        ("intel_pstate", "powersave", "balance_performance", None),
        ("intel_pstate", "powersave", "power", Severity.INFO),
        ("amd-pstate-epp", "powersave", "balance_power", Severity.INFO),
        ("intel_pstate", "performance", "performance", None),
    ],
)
def test_powersave_means_what_its_driver_makes_of_it(
    driver: str, governor: str, preference: str | None, severity: Severity | None
) -> None:
    clock = CpuClock(
        driver=driver,
        governors={governor: 8},
        preferences={} if preference is None else {preference: 8},
    )

    assert check("cores_clocked_low", with_node(HERE, cpu_clock=clock)).severity is severity


def test_a_limit_below_the_best_clock_has_its_cost_and_no_command() -> None:
    clock = CpuClock(governors={"performance": 8}, limit_hz=2e9, best_hz=4e9)

    found = check("cores_clocked_low", with_node(HERE, cpu_clock=clock))

    assert found.cost is not None
    assert found.cost.high == 2.0
    assert not any("cpupower" in command.line for command in found.commands)


@pytest.mark.parametrize(
    ("room", "status"),
    [
        (ProcessRoom(), "clean"),
        (ProcessRoom(user_limit=50, user_used=20), "fires"),
        (ProcessRoom(user_limit=4096, user_used=10), "clean"),
        (ProcessRoom(group_limit=64, group_used=None), "clean"),
        (ProcessRoom(group_limit=30, group_used=None), "fires"),
        (None, "not_checked"),
    ],
)
def test_the_limit_with_the_least_room_counts(room: ProcessRoom | None, status: str) -> None:
    assert check("processes_few", with_node(HERE, room=room)).status == status


def test_a_cache_is_moved_only_where_a_local_disk_is_known() -> None:
    nowhere = with_node(HERE, caches=(NETWORK_CACHE,))

    found = check("caches_on_network", nowhere)

    assert found.commands == ()
    assert "none was seen" in found.advice[0]


def test_a_folder_that_a_variable_names_is_left_where_it_is() -> None:
    base = with_node(make_facts(mounts=(LOCAL_TMP,)), caches=(NETWORK_CACHE,))
    chosen = with_variable(base, TRITON_CACHE_DIR=NETWORK_CACHE.folder)

    assert check("caches_on_network", base).commands
    assert check("caches_on_network", chosen).commands == ()
