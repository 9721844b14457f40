"""Which network interface is named, and when none is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from steptime.machine.checks.run_checks import judge
from steptime.machine.read.peers import nodes_of, peers_of
from steptime.machine.read.read_interfaces import is_hardware, read_hosts, read_routes
from steptime.machine.values.check_facts import CheckFacts, Interface, Route
from steptime.machine.values.check_values import CheckStatus, MachineCheck
from unit.check_cases import FAST, SLOW, make_facts, make_run, make_system, with_variable
from unit.machines import Tree

DOCKER0 = Interface(
    name="docker0",
    is_up=True,
    is_hardware=False,
    speed_bits_per_s=1e10,
    networks=("172.17.0.1/16",),
)
VIRTUAL = [replace(DOCKER0, name=name) for name in ("virbr0", "br-1", "veth7", "cni0", "flannel.1")]


def check(facts: CheckFacts) -> MachineCheck:
    return next(one for one in judge(facts) if one.code == "slow_interface")


def lines(facts: CheckFacts) -> list[str]:
    return [command.line for command in check(facts).commands]


@pytest.mark.parametrize("bridge", [DOCKER0, *VIRTUAL], ids=lambda one: one.name)
def test_a_virtual_interface_is_never_named(bridge: Interface) -> None:
    """Beside a card of 1 Gb/s a bridge of docker's says that it has 10 Gb/s."""
    facts = with_variable(
        make_facts(interfaces=(SLOW, bridge)),
        NCCL_SOCKET_IFNAME="eth0",
        MASTER_ADDR="172.17.0.9",
        SLURM_NNODES="2",
    )

    assert check(facts).status is CheckStatus.CLEAN
    assert check(facts).seen["fastest"] == "eth0 (1.00 Gb/s)"


def test_without_an_address_of_the_others_no_interface_is_named() -> None:
    facts = with_variable(make_facts(interfaces=(SLOW, FAST)), NCCL_SOCKET_IFNAME="eth0")

    assert lines(facts) == []
    assert "their addresses are not known here" in check(facts).advice[0]


@pytest.mark.parametrize(
    ("address", "routes", "named"),
    [
        ("10.1.7.1", (), True),
        ("192.168.1.9", (), False),
        ("10.9.0.1", (), False),
        ("10.9.0.1", (Route(interface="eth1", network="10.9.0.0/16"),), True),
        ("10.9.0.1", (Route(interface="eth0", network="0.0.0.0/0"),), False),
        (
            "10.9.0.1",
            (
                Route(interface="eth1", network="0.0.0.0/0"),
                Route(interface="eth0", network="10.9.0.0/16"),
            ),
            False,
        ),
    ],
)
def test_the_fastest_is_named_if_the_kernel_sends_to_the_others_through_it(
    address: str, routes: tuple[Route, ...], *, named: bool
) -> None:
    facts = with_variable(
        make_facts(interfaces=(SLOW, FAST), routes=routes),
        NCCL_SOCKET_IFNAME="eth0",
        MASTER_ADDR=address,
    )

    wanted = ["export NCCL_SOCKET_IFNAME=eth1 GLOO_SOCKET_IFNAME=eth1"] if named else []
    assert lines(facts) == wanted
    assert named or check(facts).advice


def test_of_several_equally_fast_ones_none_is_named_unless_one_leads_there() -> None:
    other = replace(FAST, name="eth2", networks=("10.2.0.5/16",))
    facts = with_variable(
        make_facts(interfaces=(SLOW, FAST, other)),
        NCCL_SOCKET_IFNAME="eth0",
        MASTER_ADDR="10.2.0.9",
    )
    same = replace(other, networks=FAST.networks)
    both = with_variable(
        make_facts(interfaces=(SLOW, FAST, same)), NCCL_SOCKET_IFNAME="eth0", MASTER_ADDR="10.1.0.9"
    )

    assert "IFNAME=eth2 " in lines(facts)[0]
    assert lines(both) == []


def test_a_fast_interface_without_an_address_is_none() -> None:
    bare = replace(FAST, networks=("169.254.3.4/16",))
    facts = with_variable(make_facts(interfaces=(SLOW, bare)), NCCL_SOCKET_IFNAME="eth0")

    assert check(facts).status is CheckStatus.CLEAN


def test_a_rule_of_the_sites_is_the_sites() -> None:
    system = make_system(site_variables={"NCCL_SOCKET_IFNAME": "/etc/profile.d/nccl.sh"})
    for rule in ("eth0", "=ens5"):
        facts = with_variable(
            make_facts(interfaces=(SLOW, FAST), system=system),
            NCCL_SOCKET_IFNAME=rule,
            MASTER_ADDR="10.1.7.1",
        )

        assert lines(facts) == []
        assert "/etc/profile.d/nccl.sh sets NCCL_SOCKET_IFNAME" in check(facts).advice[0]


# -- peers


def test_peers_are_where_ranks_meet_and_the_nodes_of_the_job() -> None:
    run = make_run(command=("torchrun", "--rdzv-endpoint=head:29400", "train.py"))
    facts = make_facts(run=run, hosts={"head": "10.1.0.1", "gpu01": "10.1.0.2", "gpu02": "::1"})
    facts = with_variable(facts, SLURM_JOB_NODELIST="gpu[01-02]", MASTER_ADDR="localhost")

    assert [str(one) for one in peers_of(facts)] == ["10.1.0.1", "10.1.0.2"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("a,b", ["a", "b"]),
        ("gpu[01-03,07],login", ["gpu01", "gpu02", "gpu03", "gpu07", "login"]),
        ("n[9-x]", []),
        ("n[1-99999]", []),
    ],
)
def test_a_list_of_nodes_is_read(text: str, names: list[str]) -> None:
    assert nodes_of(text) == names


# -- the kernel


def test_a_bond_or_vlan_over_a_device_is_hardware_and_a_bridge_is_not(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.link("class/net/eth0/device", "devices/pci0")
    tree.sys("class/net/bond0/bonding/mode", "802.3ad 4\n")
    tree.link("class/net/bond0/lower_eth0", "class/net/eth0")
    tree.sys("class/net/vlan7/uevent", "DEVTYPE=vlan\nINTERFACE=vlan7\n")
    tree.link("class/net/vlan7/lower_bond0", "class/net/bond0")
    tree.sys("class/net/br0/uevent", "DEVTYPE=bridge\n")
    tree.link("class/net/br0/lower_eth0", "class/net/eth0")
    tree.sys("class/net/veth1/uevent", "INTERFACE=veth1\n")
    folder = tree.kernel.sys / "class" / "net"

    found = {
        name for name in ("eth0", "bond0", "vlan7", "br0", "veth1") if is_hardware(folder, name)
    }

    assert found == {"eth0", "bond0", "vlan7"}


def test_routes_and_hosts_are_read(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.proc(
        "net/route",
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
        "eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\n"
        "eth1\t0000010A\t00000000\t0001\t0\t0\t0\t0000FFFF\n"
        "eth2\t0000020A\t00000000\t0000\t0\t0\t0\t0000FFFF\n"
        "broken\n",
    )
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "hosts").write_text("127.0.0.1 localhost\n10.1.0.1 head head.site # it\n")

    assert read_routes(tree.kernel) == (
        Route(interface="eth0", network="0.0.0.0/0"),
        Route(interface="eth1", network="10.1.0.0/16"),
    )
    assert read_hosts(tree.kernel) == {
        "localhost": "127.0.0.1",
        "head": "10.1.0.1",
        "head.site": "10.1.0.1",
    }
