"""Each check of the machine: planted machines where it fires, is clean, and does not apply."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from steptime.diagnose.values.finding import Severity
from steptime.machine.checks.run_checks import CHECKS, judge
from steptime.machine.values.check_facts import CheckFacts, Interface, Port, Sshd
from steptime.machine.values.check_values import (
    CheckStatus,
    MachineCheck,
    Runner,
    most_costly_first,
)
from unit.builders import make_rank
from unit.check_cases import (
    ACTIVE,
    AMX_CPU,
    DOCKER,
    FAST,
    FILES,
    GIB,
    GPU_STATE,
    HERE,
    NODES,
    SLOW,
    WORKERS,
    limited,
    make_count,
    make_facts,
    make_gpu,
    make_log,
    make_run,
    make_software,
    make_space,
    make_system,
    on_gpu,
    on_several,
    slowed_run,
    with_variable,
    without_driver,
)
from unit.node_cases import CASES


def check(code: str, facts: CheckFacts) -> MachineCheck:
    return next(one for one in judge(facts) if one.code == code)


def lines(code: str, facts: CheckFacts) -> list[str]:
    return [command.line for command in check(code, facts).commands]


def test_every_check_has_its_cases() -> None:
    assert {row.code for row in CHECKS} == set(CASES)
    assert len(CHECKS) == len(CASES)


@pytest.mark.parametrize("code", CASES)
def test_it_fires_where_it_is_planted(code: str) -> None:
    found = check(code, CASES[code].fires)

    assert found.status is CheckStatus.FIRES, found
    assert found.severity is CASES[code].severity
    assert found.certainty is not None
    assert found.commands or found.advice
    assert found.seen
    assert found.source


@pytest.mark.parametrize("code", CASES)
def test_it_is_clean_where_it_is_not_planted(code: str) -> None:
    assert check(code, CASES[code].clean).status is CheckStatus.CLEAN


@pytest.mark.parametrize("code", [code for code, case in CASES.items() if case.without])
def test_it_does_not_apply_without_the_thing(code: str) -> None:
    facts = CASES[code].without
    assert facts is not None
    found = check(code, facts)

    assert found.status is CheckStatus.NOT_APPLICABLE
    assert found.reason


@pytest.mark.parametrize("code", CASES)
def test_a_planted_machine_sets_off_nothing_that_was_not_planted(code: str) -> None:
    """What goes with it: another look at the same fault, or what the planted machine has anyway."""
    related = {
        "driver_missing": {"cpu_build_beside_gpu"},
        "driver_silent": {"cpu_build_beside_gpu"},
        "driver_too_old": {"torch_sees_no_gpu"},
        "cpu_build_beside_gpu": {"torch_without_nccl"},
        "cudnn_benchmark_off": {"matmul_precision_highest"},
        "container_without_gpus": {"cpu_build_beside_gpu", "stack_small"},
        "numa_balancing_on": {"affinity_across_nodes"},
    }
    fired = {one.code for one in judge(CASES[code].fires) if one.status is CheckStatus.FIRES}

    assert fired - related.get(code, set()) == {code}


def test_nothing_fires_on_a_quiet_machine_and_on_a_healthy_gpu_box() -> None:
    healthy = on_gpu(state=GPU_STATE)

    for facts in (HERE, healthy):
        assert [one.code for one in judge(facts) if one.status is CheckStatus.FIRES] == []


def test_a_machine_that_tells_nothing_is_not_checked_and_nothing_fires() -> None:
    bare = CheckFacts(inventory=replace(HERE.inventory, limits=limited(cpus=None, shm_bytes=None)))

    found = judge(bare)

    assert not any(one.status is CheckStatus.FIRES for one in found)
    assert check("threads_over_cores", bare).reason == "no_torch"
    assert check("shm_small", bare).reason == "not_told"


def test_a_check_that_fails_leaves_not_checked() -> None:
    broken = replace(HERE, environment=None)  # type: ignore[arg-type]

    assert check("nccl_verbose", broken).reason == "failed"


# -- software


@pytest.mark.parametrize(
    ("driver", "cuda", "status"),
    [
        ("525.60.13", "12.8", "clean"),
        ("520.61.05", "12.0", "fires"),
        ("450.80.02", "11.8", "clean"),
        ("579.99", "13.0", "fires"),
        ("580.65.06", "13.2", "clean"),
    ],
)
def test_a_driver_is_old_below_the_lowest_of_cudas_major(
    driver: str, cuda: str, status: str
) -> None:
    facts = on_gpu(software=make_software(cuda=cuda, num_devices=0))
    facts = replace(facts, inventory=replace(facts.inventory, nvidia_driver=driver))

    assert check("driver_too_old", facts).status == status


def test_an_old_driver_that_works_by_the_compatibility_package_is_clean() -> None:
    facts = on_gpu(software=make_software(cuda="13.0", num_devices=1))
    facts = replace(facts, inventory=replace(facts.inventory, nvidia_driver="550.54.15"))

    assert check("driver_too_old", facts).status is CheckStatus.CLEAN


def test_a_cuda_without_a_rule_is_not_checked() -> None:
    found = check("driver_too_old", on_gpu(software=make_software(cuda="14.0")))

    assert found.reason == "no_rule_for_this_cuda"


@pytest.mark.parametrize(
    ("capability", "held", "status"),
    [
        ("8.6", "sm_80", "clean"),
        ("8.0", "sm_86", "fires"),
        ("9.0", "sm_80 compute_80", "clean"),
        ("12.0", "sm_90", "fires"),
        ("9.0", "sm_90a", "clean"),
        ("10.3", "sm_100f", "clean"),
        ("10.3", "sm_100a", "fires"),
    ],
)
def test_code_runs_on_its_major_and_compiles_for_newer(
    capability: str, held: str, status: str
) -> None:
    software = make_software(architectures=tuple(held.split()))
    found = check(
        "architecture_not_built", on_gpu(make_gpu(compute_capability=capability), software=software)
    )

    assert found.status == status


def test_the_wheel_that_is_named_fits_the_driver() -> None:
    facts = CASES["cpu_build_beside_gpu"].fires

    assert "/cu130" in lines("cpu_build_beside_gpu", facts)[0]
    older = replace(facts, inventory=replace(facts.inventory, cuda_driver="12.4"))
    assert "/cu126" in lines("cpu_build_beside_gpu", older)[0]


def test_a_driver_that_hangs_is_silent_and_not_missing() -> None:
    facts = without_driver("driver_gave_no_answer", system=make_system(has_nvidia_module=True))

    assert check("driver_missing", facts).status is CheckStatus.CLEAN
    assert check("driver_silent", facts).seen == {"silence": "driver_gave_no_answer"}


def test_in_a_container_the_driver_is_the_hosts() -> None:
    facts = CASES["container_without_gpus"].fires

    assert check("driver_missing", facts).reason == "driver_is_the_hosts"


def test_gpus_that_a_variable_hides_are_not_told_twice() -> None:
    facts = with_variable(on_gpu(software=make_software(num_devices=0)), CUDA_VISIBLE_DEVICES="-1")

    assert check("torch_sees_no_gpu", facts).reason == "hidden_by_a_variable"
    assert check("gpus_hidden", facts).severity is Severity.CRITICAL


# -- precision, threads, memory


def test_without_a_run_a_precision_that_a_script_may_set_is_a_remark() -> None:
    facts = on_gpu(software=make_software(matmul_precision="highest"))

    found = check("matmul_precision_highest", facts)

    assert found.severity is Severity.INFO
    assert found.cost is not None
    assert found.cost.high == 7.0


def test_on_a_processor_with_amx_the_precision_counts_too() -> None:
    facts = make_facts(cpu=AMX_CPU, run=make_run(count=make_count()))

    assert check("matmul_precision_highest", facts).status is CheckStatus.FIRES


def test_ranks_on_the_processor_share_its_cores() -> None:
    ranks = (replace(make_rank(), num_threads=8),)
    facts = make_facts(run=make_run(num_ranks=4, ranks=ranks))

    found = check("threads_over_cores", facts)

    assert found.seen["num_ranks"] == 4
    assert lines("threads_over_cores", facts) == ["export OMP_NUM_THREADS=2"]


def test_threads_that_sleep_do_not_spin() -> None:
    busy = make_facts(system=make_system(others_cores=6.0))

    assert check("spin_waiting", with_variable(busy, OMP_WAIT_POLICY="passive")).status is (
        CheckStatus.CLEAN
    )


def test_cores_busy_now_are_a_remark_where_the_last_run_was_alone() -> None:
    busy = make_facts(system=make_system(others_cores=6.0), run=make_run(others_cores=0.0))

    assert check("spin_waiting", busy).severity is Severity.INFO


def test_others_that_leave_cores_enough_are_no_matter() -> None:
    facts = make_facts(system=make_system(others_cores=3.0), software=make_software(num_threads=4))

    assert check("spin_waiting", facts).status is CheckStatus.CLEAN


def test_a_quota_that_stopped_the_group_is_certain() -> None:
    facts = make_facts(
        limits=limited(cpu_quota_cores=2.0), system=make_system(throttled_fraction=0.4)
    )

    assert check("cpu_quota_below_cores", facts).certainty == "certain"


def test_a_command_that_binds_itself_is_bound() -> None:
    run = make_run(command=("numactl", "--cpunodebind=0", "python", "train.py"))
    facts = on_gpu(make_gpu(), make_gpu(1), numa=NODES, run=run)

    assert check("affinity_across_nodes", facts).status is CheckStatus.CLEAN


def test_swap_that_nothing_comes_back_from_is_at_most_a_remark() -> None:
    facts = CASES["swap_in_use"].fires
    still = replace(facts, system=replace(facts.system, swap_in_bytes_per_s=0.0))
    little = replace(still, system=replace(still.system, swap_used_bytes=100 << 20))

    assert check("swap_in_use", still).severity is Severity.INFO
    assert check("swap_in_use", little).status is CheckStatus.CLEAN


# -- containers and limits


def test_a_small_shm_is_enlarged_by_who_made_it() -> None:
    alone = make_facts(limits=limited(shm_bytes=64 << 20))
    assert lines("shm_small", alone) == ["sudo mount -o remount,size=1G /dev/shm"]
    for container, word in (
        ("docker", "--shm-size=1g"),
        ("kubernetes", "emptyDir: {medium: Memory}"),
        ("apptainer", "the host's /dev/shm"),
        ("lxc", "Whoever starts this container decides"),
    ):
        facts = make_facts(limits=limited(container=container, shm_bytes=64 << 20))
        assert lines("shm_small", facts) == []
        assert word in check("shm_small", facts).advice[0]


def test_a_small_shm_is_a_remark_for_one_process_without_workers() -> None:
    limits = limited(shm_bytes=64 << 20)

    alone = make_facts(limits=limits, run=make_run())
    with_workers = make_facts(limits=limits, run=make_run(workers=WORKERS))

    assert check("shm_small", alone).severity is Severity.INFO
    assert check("shm_small", with_workers).severity is Severity.WARNING


@pytest.mark.parametrize(
    ("container", "words"),
    [
        ("docker", "--gpus '\"device=0\"'"),
        ("podman", "--device nvidia.com/gpu=0"),
        ("apptainer", "--nv"),
        ("kubernetes", "nvidia.com/gpu in the pod's manifest"),
    ],
)
def test_gpus_are_passed_in_by_who_starts_the_container(container: str, words: str) -> None:
    facts = without_driver(of_inventory={"limits": limited(container=container)})

    found = check("container_without_gpus", facts)

    assert words in found.advice[0]
    assert found.commands == ()


def test_limits_of_a_container_with_gpus_are_remarks() -> None:
    limits = limited(container="docker", locked_bytes=64 << 10, stack_bytes=8 << 20)
    facts = on_gpu(limits=limits)

    assert check("locked_memory_low", facts).severity is Severity.INFO
    assert check("stack_small", facts).severity is Severity.INFO


def test_a_group_with_less_memory_than_the_gpus_is_a_remark() -> None:
    facts = on_gpu(limits=limited(memory_bytes=32 * GIB))

    assert check("group_memory_tight", facts).severity is Severity.INFO


@pytest.mark.parametrize(
    ("container", "variables", "words"),
    [
        ("docker", {}, "`--memory 32g`"),
        ("kubernetes", {}, "in the pod's manifest (`resources`)"),
        (None, {"SLURM_JOB_ID": "7"}, "`--mem=32G`"),
        (None, {"SLURM_JOB_ID": "7", "SLURM_MEM_PER_CPU": "4096"}, "`--mem-per-cpu`"),
        (None, {"PBS_JOBID": "7"}, "Ask PBS for 32 GiB of memory"),
        (None, {}, "Whoever set the limit of this group"),
    ],
)
def test_a_limit_is_raised_by_who_set_it(
    container: str | None, variables: dict[str, str], words: str
) -> None:
    facts = make_facts(
        limits=limited(container=container, memory_bytes=16 * GIB, cpu_quota_cores=2.0),
        system=make_system(group_used_bytes=15 * GIB),
    )
    facts = with_variable(facts, **variables)

    found = check("group_memory_tight", facts)

    assert words in found.advice[0]
    assert found.commands == ()
    assert re.search("8 cores|--cpus 8|task=8", check("cpu_quota_below_cores", facts).advice[0])


def test_a_hard_limit_of_files_needs_another_login() -> None:
    facts = make_facts(
        limits=limited(num_open_files=512), system=make_system(num_open_files_hard=512)
    )

    found = check("open_files_low", facts)
    assert found.commands[0].line.startswith('echo "$USER - nofile 65536"')
    assert found.commands[0].who is Runner.ADMINISTRATOR
    in_job = with_variable(facts, SLURM_JOB_ID="7")
    assert check("open_files_low", in_job).commands == ()


def test_a_gpu_that_no_torch_has_code_for_wants_no_other_build() -> None:
    facts = replace(CASES["cpu_build_beside_gpu"].fires)
    old = (make_gpu(compute_capability="3.5"),)
    facts = replace(facts, inventory=replace(facts.inventory, gpus=old))

    assert check("cpu_build_beside_gpu", facts).reason == "gpu_too_old"


# -- network


def test_rdma_whose_files_are_not_in_the_container_is_likely_unused() -> None:
    facts = on_several(make_facts(rdma=(ACTIVE,), limits=DOCKER))

    found = check("rdma_unused", facts)

    assert found.certainty == "likely"
    assert "--device /dev/infiniband" in found.advice[0]


@pytest.mark.parametrize(
    "variables", [{}, {"SLURM_NNODES": "1"}, {"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}]
)
def test_the_network_between_machines_is_no_warning_on_one(variables: dict[str, str]) -> None:
    low = limited(locked_bytes=8 << 20)
    facts = make_facts(rdma=(ACTIVE,), limits=low, interfaces=(SLOW, FAST))
    facts = with_variable(facts, NCCL_SOCKET_IFNAME="eth0", **variables)

    for code in ("rdma_unused", "locked_memory_low", "slow_interface"):
        assert check(code, facts).severity is Severity.INFO


def test_a_command_that_names_several_machines_spans_them() -> None:
    run = make_run(command=("torchrun", "--nnodes=4", "train.py"))

    assert check("rdma_unused", make_facts(rdma=(ACTIVE,), run=run)).certainty == "likely"


def test_without_a_log_nobody_knows_what_nccl_uses() -> None:
    facts = make_facts(rdma=(ACTIVE,), system=FILES)

    assert check("rdma_unused", facts).reason == "no_nccl_log"


def test_sockets_on_one_machine_are_a_remark() -> None:
    log = make_log(network="Socket", num_nodes=1)
    facts = make_facts(rdma=(ACTIVE,), system=FILES, nccl_log=log)

    assert check("rdma_unused", facts).severity is Severity.INFO


def test_nccl_takes_interfaces_named_ib_first() -> None:
    ib = replace(SLOW, name="ib0", speed_bits_per_s=1e10)

    found = check("slow_interface", make_facts(interfaces=(FAST, ib)))

    assert found.seen["taken"] == "ib0 (10.0 Gb/s)"
    assert found.cost is not None
    assert found.cost.high == 10.0


def test_a_rule_that_fits_no_interface_ends_the_run() -> None:
    facts = with_variable(make_facts(interfaces=(SLOW, FAST)), NCCL_SOCKET_IFNAME="=ens5")

    assert check("slow_interface", facts).severity is Severity.CRITICAL


def test_a_bridge_before_the_hardware_is_a_remark() -> None:
    bridge = Interface(name="br-4f2", is_up=True, is_hardware=False)

    found = check("slow_interface", make_facts(interfaces=(bridge, SLOW)))

    assert found.severity is Severity.INFO
    assert found.commands == ()
    assert "the network of eth0" in found.advice[0]


def test_what_nccl_chose_is_told_where_it_is_clean() -> None:
    found = check("peers_through_host", CASES["peers_through_host"].clean)

    assert found.seen["transports"] == "32 × P2P/CUMEM, 4 × NET/IB/GDRDMA"
    assert found.seen["shapes"] == "rings and trees"


# -- devices, disk, security


def test_a_clock_that_was_held_down_in_the_last_run_fires_on_a_cool_gpu() -> None:
    found = check("clocks_held_down", on_gpu(state=GPU_STATE, run=slowed_run()))

    assert found.seen == {"rank": 0, "step": 300}
    assert found.cost is not None
    assert (found.cost.low, found.cost.high) == (1.35, 1.45)


def test_errors_of_the_past_are_a_remark_and_failed_rows_are_critical() -> None:
    past = on_gpu(state=replace(GPU_STATE, num_ever=3))
    dead = on_gpu(state=replace(GPU_STATE, rows_failed=True))

    assert check("memory_errors", past).severity is Severity.INFO
    assert check("memory_errors", dead).severity is Severity.CRITICAL


def test_a_sleeping_link_may_be_narrow() -> None:
    facts = on_gpu(make_gpu(pcie_width=8), state=GPU_STATE)

    assert check("pcie_link_narrow", facts).severity is Severity.INFO


@pytest.mark.parametrize(
    ("value", "severity"),
    [("0,1", None), ("0", Severity.INFO), ("7", Severity.CRITICAL), ("GPU-1a", Severity.INFO)],
)
def test_a_list_of_visible_gpus_ends_at_the_first_that_is_none(
    value: str, severity: Severity | None
) -> None:
    facts = with_variable(on_gpu(make_gpu(), make_gpu(1)), CUDA_VISIBLE_DEVICES=value)

    assert check("gpus_hidden", facts).severity is severity


def test_a_scheduler_that_hands_out_gpus_hides_none() -> None:
    facts = with_variable(
        on_gpu(make_gpu(), make_gpu(1)), CUDA_VISIBLE_DEVICES="1", SLURM_JOB_ID="7"
    )

    assert check("gpus_hidden", facts).status is CheckStatus.CLEAN


def test_a_large_disk_with_little_left_of_it_is_not_full() -> None:
    spaces = (make_space(total_bytes=20_000 * GIB, free_bytes=400 * GIB),)

    assert check("disk_nearly_full", make_facts(system=make_system(spaces=spaces))).status is (
        CheckStatus.CLEAN
    )


def test_a_disk_without_room_for_files_is_full() -> None:
    spaces = (make_space(num_free=10),)

    assert check("disk_nearly_full", make_facts(system=make_system(spaces=spaces))).status is (
        CheckStatus.FIRES
    )


def test_an_ssh_server_on_another_port_is_found_there() -> None:
    sshd = Sshd(file="/etc/ssh/sshd_config", port=2222, passwords=True)

    assert check("ssh_passwords", make_facts(sshd=sshd)).reason == "no_ssh_server"
    listens = make_facts(sshd=sshd, ports=(Port(number=2222, is_local=False),))
    assert check("ssh_passwords", listens).status is CheckStatus.FIRES


def test_a_port_that_nothing_is_known_of_does_not_fire() -> None:
    facts = make_facts(ports=(Port(number=443, is_local=False),))

    assert check("ports_open", facts).seen == {"ports": "443"}


# -- order


def test_the_most_costly_come_first() -> None:
    facts = with_variable(
        on_gpu(
            system=make_system(others_cores=7.0, huge_pages="never"),
            software=make_software(torch="2.3.0", num_threads=64),
            run=make_run(others_cores=2.0),
        ),
        TORCHDYNAMO_DISABLE="1",
        CUDA_LAUNCH_BLOCKING="1",
    )

    codes = [one.code for one in most_costly_first(judge(facts))]

    assert codes == [
        "launch_blocking",
        "spin_waiting",
        "threads_over_cores",
        "compile_disabled",
        "old_torch",
        "huge_pages_off",
    ]
