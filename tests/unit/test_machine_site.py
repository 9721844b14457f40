"""Whose machine it is: schedulers, jobs, other people, and what the site sets for everybody."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from steptime.machine.read.read_site import read_site
from steptime.machine.read.read_sshd import read_sshd
from steptime.machine.read.read_system import read_system
from steptime.machine.values.check_facts import Sshd
from unit.machines import Tree


def system_of(tree: Tree, tmp_path: Path) -> Any:
    return read_system(tree.kernel, folders={"data": tmp_path}, sample_s=0.0)


def processes(tree: Tree, *commands: str) -> None:
    for number, command in enumerate(commands, start=1):
        tree.proc(f"{number}/comm", command + "\n")


def test_a_machine_of_ones_own_has_no_scheduler(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    processes(tree, "systemd", "bash")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").write_text(
        "root:x:0:0::/:/bin/bash\n"
        "sshd:x:105:65534::/run/sshd:/usr/sbin/nologin\n"
        "ada:x:1000:1000::/home/ada:/bin/bash\n"
        "game:x:1001:1001::/home/game:/usr/sbin/nologin\n"
    )

    found = read_site(tree.kernel, environment={})

    assert (found.scheduler, found.in_job, found.is_login_node) == (None, False, False)
    assert (found.num_others, found.num_accounts) == (0, 1)
    assert not found.is_shared


@pytest.mark.parametrize(
    ("variable", "scheduler"),
    [("SLURM_JOB_ID", "slurm"), ("PBS_JOBID", "pbs"), ("KUBERNETES_SERVICE_HOST", "kubernetes")],
)
def test_a_job_names_its_scheduler(tmp_path: Path, variable: str, scheduler: str) -> None:
    found = read_site(
        Tree(tmp_path).kernel, environment={variable: "7", "SLURMD_NODENAME": "gpu01"}
    )

    assert (found.scheduler, found.in_job, found.is_login_node) == (scheduler, True, False)


@pytest.mark.parametrize(("command", "is_login_node"), [("sshd", True), ("slurmd", False)])
def test_a_login_node_has_the_configuration_and_no_daemon(
    tmp_path: Path, *, command: str, is_login_node: bool
) -> None:
    tree = Tree(tmp_path)
    (tmp_path / "etc" / "slurm").mkdir(parents=True)
    processes(tree, "systemd", command)

    found = read_site(tree.kernel, environment={})

    assert (found.scheduler, found.is_login_node) == ("slurm", is_login_node)


def test_after_salloc_the_shell_is_on_the_login_node_still(tmp_path: Path) -> None:
    found = read_site(Tree(tmp_path).kernel, environment={"SLURM_JOB_ID": "7"})

    assert (found.scheduler, found.in_job, found.is_login_node) == ("slurm", False, True)


@pytest.mark.parametrize(
    "group",
    [
        "0::/system.slice/slurmstepd.scope/job_7/step_extern/user/task_0\n",
        "4:cpuset:/slurm/uid_1000/job_7/step_0\n",
    ],
)
def test_a_shell_that_slurm_adopted_is_in_the_job(tmp_path: Path, group: str) -> None:
    tree = Tree(tmp_path)
    tree.proc("self/cgroup", group)

    found = read_site(tree.kernel, environment={})

    assert (found.scheduler, found.in_job, found.is_login_node) == ("slurm", True, False)


def test_people_behind_a_directory_or_behind_hidepid_are_not_counted(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.proc("4711/comm", "bash\n")  # the first process is hidden
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "nsswitch.conf").write_text("passwd: files sss\n")
    (tmp_path / "etc" / "passwd").write_text("ada:x:1000:1000::/home/ada:/bin/bash\n")

    found = read_site(tree.kernel, environment={})

    assert (found.num_others, found.num_accounts) == (None, None)
    assert found.hides_others
    assert found.is_shared


@pytest.mark.parametrize(
    ("owner", "num"), [(1001, 1), (0, 0), (105, 0), (61200, 0), (65534, 0), (100_033, 0)]
)
def test_only_people_count_as_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, num: int
) -> None:
    tree = Tree(tmp_path)
    processes(tree, "systemd", "python")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "subuid").write_text("ada:100000:65536\n")
    real = Path.stat

    def stat(path: Path, **options: Any) -> Any:
        found = real(path, **options)
        return SimpleNamespace(st_uid=owner) if path.name == "2" else found

    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(Path, "stat", stat)

    assert read_site(tree.kernel, environment={}).num_others == num


def test_variables_of_the_site_are_found_with_their_file(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    folder = tmp_path / "etc" / "profile.d"
    folder.mkdir(parents=True)
    (tmp_path / "etc" / "environment").write_text('NCCL_DEBUG="WARN"\n')
    (tmp_path / "etc" / "nccl.conf").write_text("NCCL_IB_HCA=^mlx5_8\n# NCCL_ALGO=Ring\n")
    (folder / "nccl.sh").write_text("if true; then\n  export NCCL_P2P_DISABLE=1\nfi\n")
    (folder / "nccl.csh").write_text("setenv NCCL_NET_GDR_LEVEL PHB\nunset NCCL_PROTO\n")

    assert system_of(tree, tmp_path).site_variables == {
        "NCCL_DEBUG": "/etc/environment",
        "NCCL_IB_HCA": "/etc/nccl.conf",
        "NCCL_P2P_DISABLE": "/etc/profile.d/nccl.sh",
        "NCCL_NET_GDR_LEVEL": "/etc/profile.d/nccl.csh",
    }


def test_what_sets_gpus_up_at_the_start_is_found(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    folder = tmp_path / "etc" / "systemd" / "system"
    folder.mkdir(parents=True)
    (folder / "power.service").write_text("[Service]\nExecStart=/usr/bin/nvidia-smi -pl 400\n")
    (folder / "other.service").write_text("[Service]\nExecStart=/bin/true\n")

    assert system_of(tree, tmp_path).gpu_settings_at_start == ("/etc/systemd/system/power.service",)


def test_the_cores_of_the_group_are_read_beside_the_affinity(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    group = tmp_path / "group"
    group.mkdir()
    tree.proc("self/cgroup", "0::/\n")
    tree.proc("self/mountinfo", f"30 1 0:26 / {group} rw - cgroup2 cgroup2 rw\n")
    (group / "cpuset.cpus.effective").write_text("0-15\n")

    assert system_of(tree, tmp_path).cpuset == "0-15"


def test_ones_own_key_is_seen(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    (tmp_path / "etc" / "ssh").mkdir(parents=True)
    (tmp_path / "etc" / "ssh" / "sshd_config").write_text("Port 22\n")
    (tmp_path / "home" / ".ssh").mkdir(parents=True)

    without = read_sshd(tree.kernel, home=tmp_path / "home")
    (tmp_path / "home" / ".ssh" / "authorized_keys").write_text("ssh-ed25519 AAAA ada\n")
    found = read_sshd(tree.kernel, home=tmp_path / "home")

    assert isinstance(without, Sshd)
    assert isinstance(found, Sshd)
    assert (without.has_own_key, found.has_own_key) == (False, True)
