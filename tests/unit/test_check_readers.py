"""The readers behind the checks: files of a kernel, logs of NCCL, what a child says."""

# ruff: noqa: N802 - the names are those of NVML
from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from steptime.machine.checks.gather import Request, gather, read_nccl_log
from steptime.machine.read.nccl_log import parse_nccl_log
from steptime.machine.read.read_gpus import read_gpu_states
from steptime.machine.read.read_interfaces import read_interfaces
from steptime.machine.read.read_software import ask_software, parse_software
from steptime.machine.read.read_sshd import read_sshd
from steptime.machine.read.read_system import read_ports, read_spaces, read_system
from steptime.machine.values.check_facts import Port, Software, Sshd
from unit.check_cases import make_inventory
from unit.machines import FakeNvml, Tree

PAGE = os.sysconf("SC_PAGE_SIZE")


def system_of(tree: Tree, tmp_path: Path) -> Any:
    return read_system(tree.kernel, folders={"data": tmp_path}, sample_s=0.0)


# -- the kernel


def test_the_state_of_the_system_is_read_from_small_files(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.proc("meminfo", "SwapTotal: 2048 kB\nSwapFree: 1024 kB\n")
    tree.proc("sys/kernel/numa_balancing", "1\n")
    tree.proc("driver/nvidia/version", "NVRM\n")
    tree.sys("kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "os-release").write_text('NAME="Debian"\nID=debian\n')
    (tmp_path / "dev" / "infiniband").mkdir(parents=True)
    (tmp_path / "dev" / "infiniband" / "uverbs0").touch()

    found = system_of(tree, tmp_path)

    assert (found.os_id, found.huge_pages, found.numa_balancing) == ("debian", "never", True)
    assert found.swap_used_bytes == 1 << 20
    assert found.has_nvidia_module
    assert found.has_infiniband_files
    assert not found.has_nvidia_files
    assert [space.folder for space in found.spaces] == [str(tmp_path)]


def test_a_system_that_tells_nothing_is_none_throughout(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.forget()

    found = system_of(tree, tmp_path)

    assert found.huge_pages is None
    assert found.swap_used_bytes is None
    assert found.others_cores is None
    assert found.throttled_fraction is None
    assert found.group_used_bytes is None


def test_stopped_periods_and_memory_of_the_group_are_read(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    group = tmp_path / "group"
    group.mkdir()
    tree.proc("self/cgroup", "0::/\n")
    tree.proc("self/mountinfo", f"30 1 0:26 / {group} rw - cgroup2 cgroup2 rw\n")
    (group / "cpu.max").write_text("200000 100000\n")
    (group / "cpu.stat").write_text("usage_usec 5\nnr_periods 200\nnr_throttled 50\n")
    (group / "memory.current").write_text("1000\n")
    (group / "memory.stat").write_text("anon 600\ninactive_file 300\nactive_file 50\n")

    found = system_of(tree, tmp_path)

    assert found.throttled_fraction == 0.25
    assert found.group_used_bytes == 650


def test_a_file_system_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()

    found = read_spaces({"data": tmp_path, "temporary": tmp_path / "inner", "no": tmp_path / "x"})

    assert [space.what for space in found] == ["data"]


# -- ports, interfaces, sshd

TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000
   1: 00000000:2049 00000000:0000 0A 00000000:00000000
   2: 0500A8C0:D431 0500A8C0:2049 01 00000000:00000000
"""
TCP6 = """\
  sl  local_address                         remote_address                        st
   0: 00000000000000000000000001000000:1771 00000000000000000000000000000000:0000 0A
   1: 00000000000000000000000000000000:0016 00000000000000000000000000000000:0000 0A
   2: 0000000000000000FFFF00000100007F:1771 00000000000000000000000000000000:0000 0A
"""


def test_listeners_are_told_with_who_reaches_them(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.proc("net/tcp", TCP)
    tree.proc("net/tcp6", TCP6)

    assert read_ports(tree.kernel) == (
        Port(number=22, is_local=False),
        Port(number=6001, is_local=True),
        Port(number=8080, is_local=True),
        Port(number=8265, is_local=False),
    )


def test_no_list_of_ports_is_not_an_empty_one(tmp_path: Path) -> None:
    assert read_ports(Tree(tmp_path).kernel) is None


def test_interfaces_with_an_address_are_those_of_this_machine(tmp_path: Path) -> None:
    names = [one.name for one in read_interfaces(Tree(tmp_path).kernel)]

    assert "lo" in names or names == []


def write_sshd(tmp_path: Path, text: str, **drop_ins: str) -> Sshd | str:
    folder = tmp_path / "etc" / "ssh"
    (folder / "sshd_config.d").mkdir(parents=True)
    (folder / "sshd_config").write_text(text)
    for name, words in drop_ins.items():
        (folder / "sshd_config.d" / f"{name}.conf").write_text(words)
    return read_sshd(Tree(tmp_path).kernel)


@pytest.mark.parametrize(
    ("text", "passwords"),
    [
        ("", None),
        ("PasswordAuthentication no\n", False),
        ("passwordauthentication=yes\n", True),
        ("#PasswordAuthentication no\n", None),
        ("PasswordAuthentication no\nPasswordAuthentication yes\n", False),
        ("Match User a\nPasswordAuthentication no\n", None),
        ("PasswordAuthentication no\nKbdInteractiveAuthentication yes\nUsePAM yes\n", True),
        ('Banner "open\nPasswordAuthentication no\n', False),
    ],
)
def test_the_first_word_on_passwords_counts(
    tmp_path: Path, text: str, *, passwords: bool | None
) -> None:
    found = write_sshd(tmp_path, text)

    assert isinstance(found, Sshd)
    assert found.passwords is passwords


def test_what_is_included_comes_where_it_is_included(tmp_path: Path) -> None:
    found = write_sshd(
        tmp_path,
        "Include /etc/ssh/sshd_config.d/*.conf\nPort 2222\nPasswordAuthentication no\n",
        cloud="PasswordAuthentication yes\n",
    )

    assert found == Sshd(file="/etc/ssh/sshd_config", has_drop_ins=True, port=2222, passwords=True)


def test_a_file_that_includes_itself_ends(tmp_path: Path) -> None:
    found = write_sshd(tmp_path, "Include /etc/ssh/sshd_config\nPasswordAuthentication no\n")

    assert isinstance(found, Sshd)
    assert found.passwords is False


def test_no_configuration_is_no_server(tmp_path: Path) -> None:
    assert read_sshd(Tree(tmp_path).kernel) == "no_file"


# -- what the driver says


class HotNvml(FakeNvml):
    """A GPU that is hot, limited, and has errors."""

    def nvmlDeviceGetPersistenceMode(self, handle: int) -> int:
        return 0

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: int) -> int:
        return 400_000

    def nvmlDeviceGetPowerManagementDefaultLimit(self, handle: int) -> int:
        return 700_000

    def nvmlDeviceGetPowerManagementLimit(self, handle: int) -> int:
        return 500_000

    def nvmlDeviceGetPowerManagementLimitConstraints(self, handle: int) -> list[int]:
        return [200_000, 700_000]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        return [SimpleNamespace(pid=7)]

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        return 0x20 | 0x4

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return SimpleNamespace(gpu=90, memory=10)

    def nvmlDeviceGetTotalEccErrors(self, handle: int, kind: int, counter: int) -> int:
        return {0: 1, 1: 7}[counter] if kind == 1 else 0

    def nvmlDeviceGetRemappedRows(self, handle: int) -> tuple[int, int, int, int]:
        return 0, 1, 1, 0


def test_the_state_of_a_gpu_is_what_nvml_says() -> None:
    (found,) = read_gpu_states(HotNvml("0000:3b:00.0"))

    assert found.persistence is False
    assert (found.power_limit_w, found.default_power_limit_w) == (400.0, 700.0)
    assert (found.requested_power_limit_w, found.max_power_limit_w) == (500.0, 700.0)
    assert (found.num_processes, found.is_idle) == (1, False)
    assert found.held_down == ("power_cap", "thermal")
    assert found.busy_fraction == 0.9
    assert (found.num_uncorrected, found.num_ever) == (1, 7)
    assert (found.rows_pending, found.rows_failed) == (True, False)


def test_what_a_gpu_does_not_tell_is_none() -> None:
    (found,) = read_gpu_states(FakeNvml("0000:3b:00.0"))

    assert found.held_down is None
    assert found.num_uncorrected is None
    assert found.requested_power_limit_w is None
    assert not found.is_idle  # nobody knows


# -- what torch says


def test_the_answer_is_the_last_line() -> None:
    told = {"python": "p", "torch": "2.13.0", "cuda": "13.0", "cudnn_built": [9, 1, 0]}
    told["pins"] = [["nvidia-nccl-cu13", "2.27", "2.28"]]

    found = parse_software("a library speaks\n" + json.dumps(told) + "\n")

    assert isinstance(found, Software)
    assert found.cudnn_built == (9, 1, 0)
    assert found.pins[0].installed == "2.28"


@pytest.mark.parametrize(
    ("out", "errors", "expected"),
    [
        ("", "Segmentation fault\n", ("torch_did_not_tell", "Segmentation fault")),
        ("[1]", "", ("torch_did_not_tell", None)),
        ('{"missing": "no_torch", "detail": "No module"}', "", ("no_torch", "No module")),
        ('{"python": "p"}', "", ("torch_did_not_tell", "'torch'")),
    ],
)
def test_no_answer_has_its_reason(out: str, errors: str, expected: tuple[str, str | None]) -> None:
    assert parse_software(out, errors) == expected


def test_a_python_that_is_none_does_not_start(tmp_path: Path) -> None:
    assert ask_software(str(tmp_path / "python"), environment={})[0] == "python_does_not_start"  # type: ignore[index]


def test_a_python_without_torch_says_so(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('none', name='torch')\n")

    found = ask_software(sys.executable, environment={"PYTHONPATH": str(tmp_path)})

    assert found == ("no_torch", "none")


def test_a_torch_that_answers_little_is_asked_on(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(
        "from types import SimpleNamespace as N\n"
        "__version__ = '2.4.0'\nversion = N(cuda='12.1')\n"
        "distributed = N(is_nccl_available=lambda: False)\n"
        "cuda = N(is_available=lambda: False)\n"
        "def get_num_threads(): raise RuntimeError('no')\n"
        "def get_float32_matmul_precision(): return 'highest'\n"
    )

    found = ask_software(sys.executable, environment={"PYTHONPATH": str(tmp_path)})

    assert isinstance(found, Software)
    assert (found.torch, found.cuda, found.num_devices) == ("2.4.0", "12.1", 0)
    assert found.num_threads is None
    assert found.has_nccl is False


# -- what NCCL says

LOG = """\
box:7:7 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.5<0>
some other line
box:7:7 [0] NCCL INFO NCCL version 2.21.5+cuda12.4
box:7:9 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.5<0>
box:7:9 [0] NCCL INFO Using network IB
box:7:9 [0] NCCL INFO comm 0x5 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0
box:7:9 [0] NCCL INFO Trees [0] 1/8/-1->0->-1 [1] 1/-1/-1->0->8
box:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
box:7:9 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read
box:7:9 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA
box:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0(4)/GDRDMA
box:7:9 [0] NCCL INFO Connected all rings
box:7:9 [0] NCCL INFO Connected all trees
box:7:9 [0] NCCL INFO AllReduce: 4194304 Bytes -> Algo 1 proto 2 time 92.1
box:7:9 [0] NCCL INFO AllReduce: 1024 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..1}
"""


def test_transports_and_shapes_come_out_of_the_log() -> None:
    found = parse_nccl_log(LOG, path="nccl.log")

    assert found is not None
    assert (found.version, found.network, found.interface) == ("2.21.5", "IB", "eth0")
    assert found.transports == {"P2P/CUMEM/read": 2, "NET/IB/GDRDMA": 2}
    assert (found.num_ranks, found.num_nodes) == (16, 2)
    assert found.has_rings
    assert found.has_trees
    assert found.algorithms == (
        "AllReduce of 4194304 bytes by RING",
        "AllReduce of 1024 bytes by TREE",
    )


def test_sockets_are_told_by_their_name() -> None:
    text = LOG.replace("Using network IB", "Using network Socket")

    found = parse_nccl_log(text, path="nccl.log")

    assert found is not None
    assert found.network == "Socket"


def test_a_log_of_something_else_is_none(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("epoch 1\n")

    assert read_nccl_log(tmp_path / "log", {}) == "log_is_not_of_nccl"
    assert read_nccl_log(tmp_path / "none", {}) == "log_cannot_be_read"
    assert read_nccl_log(None, {}) == "no_nccl_log"


def test_the_newest_log_that_nccl_was_told_to_write_is_taken(tmp_path: Path) -> None:
    for number, name in enumerate(("nccl.a.1", "nccl.b.2")):
        (tmp_path / name).write_text(LOG)
        os.utime(tmp_path / name, (number, number))

    found = read_nccl_log(None, {"NCCL_DEBUG_FILE": str(tmp_path / "nccl.%h.%p")})

    assert not isinstance(found, str)
    assert found.path.endswith("nccl.b.2")


# -- all of it


def test_what_cannot_be_read_is_named_and_the_rest_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steptime.machine.read.read_system.SAMPLE_S", 0.0)
    monkeypatch.setattr("time.sleep", lambda _: None)
    tree = Tree(tmp_path)
    request = Request(python=None, environment={"A": "b"}, folders={}, nccl_log=None, run="no_run")

    found = gather(make_inventory(), request, load_nvml=lambda: "none", kernel=tree.kernel)

    assert found.missing == {
        "nccl_log": "no_nccl_log",
        "run": "no_run",
        "software": "no_python",
        "sshd": "no_file",
    }
    assert found.environment == {"A": "b"}
