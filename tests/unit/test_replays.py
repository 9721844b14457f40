"""Whole nodes, read and judged: the full set of findings is golden, and no two contradict."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from itertools import combinations

import pytest
from rich.console import Console

from steptime.diagnose.values.finding import Severity
from steptime.machine.checks.run_checks import judge
from steptime.machine.values.check_facts import CheckFacts
from steptime.machine.values.check_values import CheckStatus, MachineCheck
from steptime.report.blocks.machine.check_report import check_blocks
from steptime.report.text.paint_text import print_blocks
from unit.machines import Tree
from unit.node_cases import CASES, FURTHER
from unit.replays import MACHINES, facts_of


@pytest.fixture(params=MACHINES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], CheckFacts]:
    """Each node is planted and read once."""

    @cache
    def read(name: str) -> CheckFacts:
        tree = Tree(tmp_path_factory.mktemp(name))
        with pytest.MonkeyPatch.context() as patch:
            return facts_of(MACHINES[name](tree), tree, patch)

    return read


def fired(facts: CheckFacts) -> dict[str, MachineCheck]:
    return {one.code: one for one in judge(facts) if one.status is CheckStatus.FIRES}


def check(code: str, facts: CheckFacts) -> MachineCheck:
    return next(one for one in judge(facts) if one.code == code)


def test_all_that_is_found_is_golden(
    name: str, replay: Callable[[str], CheckFacts], check_golden: Callable[[str, str], None]
) -> None:
    facts = replay(name)
    file = io.StringIO()
    console = Console(file=file, width=100)
    found = tuple(one for one in judge(facts) if one.status is not CheckStatus.CLEAN)
    print_blocks(check_blocks(found, facts.basis, is_all=True), console=console)

    check_golden(f"node_{name}.txt", file.getvalue())


def test_no_check_fails_and_no_remedy_is_missing(
    name: str, replay: Callable[[str], CheckFacts]
) -> None:
    for one in judge(replay(name)):
        assert one.reason != "failed", one.code
        if one.status is CheckStatus.FIRES:
            assert one.commands or one.advice, one.code


# -- remedies that contradict each other


def settings_of(check: MachineCheck) -> Iterable[tuple[str, str]]:
    """What a remedy sets, and to what: variables, services, modules, sysctl, clocks of GPUs."""
    for command in check.commands:
        line = command.line
        for name, value in re.findall(r"\b([A-Z][A-Z0-9_]+)=(\S+)", line):
            yield name, value
        if line.startswith("unset "):
            yield from ((word, "") for word in line.split("#")[0].split()[1:])
        for verb, unit in re.findall(
            r"systemctl (?:enable|disable|start|stop|restart)( --now)? (\S+)", line
        ):
            yield f"service {unit}", verb
        for undone, module in re.findall(r"modprobe (-r )?(\S+)", line):
            yield f"module {module.replace('_', '-')}", undone
        for word, value in re.findall(r"(?:sysctl -w|tee) (\S+?)=?(\S*)$", line):
            yield word, value
        gpus = " ".join(re.findall(r"-i (\S+)", line))
        for option, value in re.findall(r"nvidia-smi .*?(-pl|-mig|-pm|-lgc) (\S+)", line):
            yield f"nvidia-smi {option} {gpus}", value


def contradictions(checks: Iterable[MachineCheck]) -> list[str]:
    wrong = []
    for one, other in combinations(checks, 2):
        values = dict(settings_of(one))
        wrong += [
            f"{one.code} sets {what} to {values[what]!r}, {other.code} to {value!r}"
            for what, value in settings_of(other)
            if what in values and values[what] != value
        ]
    return wrong


def test_no_two_remedies_contradict_each_other(
    name: str, replay: Callable[[str], CheckFacts]
) -> None:
    assert contradictions(fired(replay(name)).values()) == []


@pytest.mark.parametrize("code", CASES)
def test_no_planted_machine_is_told_two_things_that_exclude_each_other(code: str) -> None:
    for facts in (CASES[code].fires, *FURTHER.get(code, ())):
        assert contradictions(fired(facts).values()) == []


def test_a_contradiction_is_noticed() -> None:
    variable = fired(CASES["launch_blocking"].fires)["launch_blocking"]
    command = replace(variable.commands[0], line="export CUDA_LAUNCH_BLOCKING=1")
    other = replace(variable, code="other", commands=(command,))

    assert len(contradictions((variable, other))) == 1


def test_a_gpu_whose_memory_failed_is_told_one_thing_to_do(
    replay: Callable[[str], CheckFacts],
) -> None:
    found = fired(replay("failing_memory"))

    assert "memory_errors" in found["gpu_errors_logged"].advice[0]
    assert "No row waits" in found["memory_errors"].advice[0]


def test_a_gpu_that_somebody_uses_is_not_to_be_reset(replay: Callable[[str], CheckFacts]) -> None:
    for code, one in fired(replay("filled_gpu")).items():
        assert not any("reset" in command.line for command in one.commands), code


# -- what each machine is for


def test_on_a_healthy_node_nothing_is_found(replay: Callable[[str], CheckFacts]) -> None:
    assert fired(replay("healthy")) == {}


def test_a_user_sees_nothing_wrong_and_is_told_what_was_not_read(
    replay: Callable[[str], CheckFacts],
) -> None:
    facts = replay("healthy_as_user")

    assert fired(facts) == {}
    assert check("gpu_errors_logged", facts).reason == "no_right_to_read_the_log"
    assert check("peers_redirected", facts).reason == "root_alone_may_read"


def test_of_many_faults_at_once_each_is_found(replay: Callable[[str], CheckFacts]) -> None:
    assert set(fired(replay("many_faults"))) == {
        *("gpu_off_the_bus", "gpu_errors_logged", "program_errors_logged", "memory_errors"),
        *("nvlink_down", "pcie_link_slow", "gpu_memory_taken", "mig_on", "persistence_off"),
        *("rdma_port_slow", "peers_redirected", "mtu_small"),
        *("interrupts_crowded", "cores_clocked_low", "caches_on_network"),
        *("affinity_across_nodes", "threads_over_cores"),
    }


def test_the_gpus_that_are_named_are_none_that_another_check_warns_of(
    replay: Callable[[str], CheckFacts],
) -> None:
    """GPU 2 is lost, 5 is off NVLink, 6 had an error that needs a reset, 7 is divided."""
    found = fired(replay("many_faults"))

    lines = [command.line for command in found["gpu_memory_taken"].commands]
    assert "export CUDA_VISIBLE_DEVICES=0,1,3" in lines
    assert "gpu_errors_logged" in found["memory_errors"].advice[0]


@pytest.mark.parametrize(
    ("machine", "codes"),
    [
        ("fallen_gpu", {"gpu_off_the_bus"}),
        ("failing_memory", {"gpu_errors_logged", "program_errors_logged", "memory_errors"}),
        ("off_nvlink", {"nvlink_down", "gpu_errors_logged"}),
        ("slow_link", {"pcie_link_slow"}),
        ("divided", {"mig_on", "affinity_across_nodes"}),
        ("filled_gpu", {"gpu_memory_taken"}),
        ("quarter_rate", {"rdma_port_slow", "peers_redirected"}),
        ("cloud", {"time_stolen", "cores_clocked_low", "mtu_small", "interrupts_crowded"}),
        ("slurm", {"gpu_memory_taken", "caches_on_network", "processes_few"}),
        (
            "amd",
            {
                "numa_balancing_on",
                "cores_clocked_low",
                "affinity_across_nodes",
                "iommu_translates",
            },
        ),
    ],
)
def test_what_is_wrong_with_a_node_is_found_and_nothing_else(
    machine: str, codes: set[str], replay: Callable[[str], CheckFacts]
) -> None:
    assert set(fired(replay(machine))) == codes


def test_a_container_without_tools_knows_little_and_says_so(
    replay: Callable[[str], CheckFacts],
) -> None:
    facts = replay("bare_container")
    unknown = (
        *("gpu_errors_logged", "program_errors_logged", "gpu_off_the_bus", "fabric_not_ready"),
        *("pcie_link_slow", "nvlink_down", "gpu_memory_taken", "mig_on", "memory_errors"),
        *("persistence_off", "clocks_held_down", "peers_redirected"),
    )

    assert {code: check(code, facts).status.value for code in unknown} == dict.fromkeys(
        unknown, "not_checked"
    )
    assert fired(facts) == {}


def test_the_lost_gpu_is_named_and_its_programs_are_not_blamed(
    replay: Callable[[str], CheckFacts],
) -> None:
    found = fired(replay("fallen_gpu"))

    assert found["gpu_off_the_bus"].severity is Severity.CRITICAL
    assert found["gpu_off_the_bus"].seen["silent"] == "0000:52:00.0"


def test_the_link_of_a_gpu_that_rests_is_not_judged(replay: Callable[[str], CheckFacts]) -> None:
    assert fired(replay("slow_link"))["pcie_link_slow"].seen["gpus"] == "1"
