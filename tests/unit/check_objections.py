"""For each check: what is planted, what a cluster's administrator could object, and the answer."""

from __future__ import annotations

from dataclasses import dataclass, replace

from steptime.machine.values.check_facts import CheckFacts, Interface, Port, Sshd
from steptime.machine.values.check_values import MachineSite
from steptime.machine.values.inventory_values import Mount, Ram
from unit.check_cases import (
    ACTIVE,
    FAST,
    FILES,
    GIB,
    GPU_STATE,
    NODES,
    SLOW,
    limited,
    make_facts,
    make_gpu,
    make_log,
    make_software,
    make_space,
    make_system,
    on_gpu,
    with_variable,
    without_driver,
)
from unit.node_objections import NODE_OBJECTIONS


@dataclass(frozen=True, slots=True)
class Objection:
    """One row of the page.

    Attributes:
        planted: the machine on which the check fires.
        objection: what could be said against a command there.
        answer: why that does not apply to what is shown.
    """

    planted: str
    objection: str
    answer: str


_SHELL = (
    "The site sets it for everybody, for a reason that the user does not see.",
    "Files that set variables for all users are read; if one of them sets it, no command is shown.",
)
_GUARD = (
    "It gets around a fault of this machine: without it trainings hang.",
    "It changes one shell; the advice is to compare one run. What a file of the site sets is not "
    "unset.",
)
_TUNE = (
    "It trains on a login node, or on a node outside of any job.",
    "Outside of the scheduler's jobs the command is withheld. Trials run in isolation, and change "
    "no setting of the machine.",
)
_BUILD = (
    "It upgrades everything in an environment that others use, to a version that dropped this GPU "
    "or needs a newer driver.",
    "The version stays, and so do all other packages; the build is one that is published, has code "
    "for every GPU here and fits the driver. Packages of somebody else, of conda, of the "
    "distribution, or of all users of a node are left alone.",
)
_DRIVER = (
    "A driver is part of the node's image; installed by hand it breaks the next update and needs a "
    "restart.",
    "Nothing is installed: the command lists what the distribution offers, and whoever "
    "administers the machine decides.",
)
_INSIDE = (
    "The line starts a container with all GPUs and without its other options, or edits a "
    "deployment that is not there.",
    "The options that are missing are advice; the command that started the container, and what "
    "a pod belongs to, cannot be seen from inside.",
)
_LIMIT = (
    "`*` in limits.d raises the limit of all users, and jobs have their limits from slurmd.",
    "It is for one user and for the administrator; in a job, and on a scheduler's machine, it is "
    "advice that names the daemon.",
)
_CONFIGURED = (
    "The site set this on purpose: for power, cooling, or steady clocks.",
    "It is offered only on a machine of one's own: no scheduler, no container, nobody else at "
    "work, and no file that sets GPUs up at the start.",
)


def _row(planted: str, reasons: tuple[str, str]) -> Objection:
    return Objection(planted, *reasons)


OBJECTIONS: dict[str, Objection] = {
    "driver_missing": _row("an H100 on the bus, NVML says that there is no library", _DRIVER),
    "driver_silent": Objection(
        "driver and library of different versions (NVML error 18)",
        "A restart ends every job on the node.",
        "It is the administrator's, says that it ends everything, and is withheld in jobs, on "
        "nodes of a scheduler, and while other people have processes.",
    ),
    "cpu_build_beside_gpu": _row("an H100 with driver 580 beside torch 2.13.0+cpu", _BUILD),
    "driver_too_old": _row("torch for CUDA 13 on driver 550, which sees no GPU", _BUILD),
    "torch_sees_no_gpu": Objection(
        "the driver reports a GPU, torch none, with error 802",
        "A tensor on the GPU takes memory from the job that runs there.",
        "It initializes CUDA, which says the reason, and allocates nothing.",
    ),
    "architecture_not_built": _row("a GPU of capability 12.0, and a torch up to sm_90", _BUILD),
    "cudnn_differs": Objection(
        "built with cuDNN 9.10, 8.9 loaded",
        "Without LD_LIBRARY_PATH, MPI and the modules of the site are gone too.",
        "Only the folders that hold a cuDNN leave the list, or its module is unloaded.",
    ),
    "cuda_packages_differ": Objection(
        "nvidia-nccl-cu13 2.26.2, torch asks for 2.27.5",
        "Another package asks for that version, and breaks.",
        "The command asks pip who wants what; the version is advice.",
    ),
    "torch_without_nccl": Objection(
        "two GPUs, a torch without NCCL",
        "Such a torch was made for this platform, and the one on PyPI does not run there.",
        "Advice without a command.",
    ),
    "old_torch": Objection(
        "an H100 with torch 2.1.2",
        "A newer torch changes results, drops GPUs, and needs a newer driver.",
        "Advice without a command: an environment of its own, with a build that fits all GPUs and "
        "the driver, or none.",
    ),
    "matmul_precision_highest": _row("a run of float32 products on an H100", _TUNE),
    "cudnn_benchmark_off": Objection(
        "a run that is two thirds convolutions of one shape",
        "None: it is a line of the script.",
        "Advice without a command.",
    ),
    "threads_over_cores": Objection(
        "64 threads on 8 cores",
        "In a job of Slurm each task has fewer cores than the shell sees.",
        "SLURM_CPUS_PER_TASK counts where it is set.",
    ),
    "spin_waiting": Objection(
        "8 threads, others keep 6 of 8 cores busy",
        "On a node of several jobs others' cores are not this job's, and one second of load is no "
        "reason for fewer threads.",
        "With a cpuset or an affinity the check says that it cannot know; only the way of waiting "
        "is changed.",
    ),
    "cpu_quota_below_cores": Objection(
        "a quota of 2 cores, 8 seen",
        "Users must not raise their own limits, and systemd-run cannot.",
        "The command uses fewer threads; more cores are asked for, from whoever gave the quota.",
    ),
    "affinity_across_nodes": Objection(
        "two GPUs and two NUMA nodes, processes on any",
        "numactl to node 0 is wrong for a GPU at node 1, --membind fails where the node is full, "
        "and all GPUs of a shared machine are not this user's.",
        "torchrun binds each process to the node of its own GPU; numactl names the node of the one "
        "GPU and prefers its memory. As many processes as the last run had; on a shared machine "
        "without one it is advice.",
    ),
    "cores_far_from_gpu": Objection(
        "cores 0 to 3 allowed, the GPU near 4 to 7",
        "taskset leaves the cores that Slurm, or a cpuset, handed out.",
        "It names only cores inside of the group's cpuset, and nothing where a scheduler hands out "
        "cores: there the options of srun and sbatch are advice.",
    ),
    "threads_pinned_alike": Objection(
        "KMP_AFFINITY set, two ranks",
        "In a job places are those of each task's own cores, and right.",
        "In a job OMP_PLACES and OMP_PROC_BIND do not fire; what a file of the site sets stays.",
    ),
    "default_allocator": _row("a run with 18,000 page faults a step", _TUNE),
    "huge_pages_off": Objection(
        "transparent huge pages set to never",
        "They are off for a database, or for latency.",
        "Advice without a command, since nothing is known to be lost.",
    ),
    "swap_in_use": Objection(
        "4 GiB in swap, 5 MB/s come back",
        "swapoff without enough memory ends programs.",
        "The command shows who uses memory, or swap; nothing is turned off.",
    ),
    "group_memory_tight": Objection(
        "15 of 16 GiB of the group in use",
        "Users must not raise their own limits.",
        "Advice: what to ask the scheduler, the manifest, or whoever set the limit for.",
    ),
    "numa_balancing_on": Objection(
        "a GPU by AMD, two NUMA nodes, balancing on",
        "It is a setting of the node, for all its jobs.",
        "It is the administrator's and says so; withheld in jobs, pods and on nodes of a "
        "scheduler; for the host in other containers. It lasts until the next restart.",
    ),
    "shm_small": _row("64 MiB of /dev/shm in a container of Docker's", _INSIDE),
    "locked_memory_low": _row("InfiniBand, 8 MiB may be locked", _LIMIT),
    "open_files_low": _row("256 files may be open", _LIMIT),
    "stack_small": Objection(
        "a stack of 1 MiB",
        "The hard limit forbids it.",
        "The hard limit is read; where it is lower, there is no command.",
    ),
    "container_without_gpus": _row("a container of Docker's, an H100 on the bus", _INSIDE),
    "rdma_unused": Objection(
        "an active HCA, NCCL's log says Socket",
        "NCCL_IB_HCA=mlx5_0 takes one of eight HCAs, perhaps that of the storage.",
        "No device is ever named: NCCL chooses. Variables that keep it off are unset, files of "
        "/dev/infiniband come with a module (administrator) or with the container.",
    ),
    "infiniband_disabled": _row("NCCL_IB_DISABLE=1 on several machines", _GUARD),
    "slow_interface": Objection(
        "NCCL_SOCKET_IFNAME=eth0 (1 Gb/s), eth1 has 100 Gb/s",
        "The fastest may be a bridge of Docker's, have no address, or not lead to the others.",
        "Bridges, pairs and tunnels never count. It is named only if the addresses of the other "
        "machines are known and the kernel sends to them through it, and no file of the site sets "
        "the rule.",
    ),
    "gpu_ranks_on_gloo": Objection(
        "two ranks on GPUs, the script says gloo",
        "None: it is a line of the script.",
        "Advice without a command.",
    ),
    "peers_through_host": Objection(
        "NVLink between two GPUs, NCCL's log says SHM",
        "Access control stays on for the safety of virtual machines.",
        "The command shows what is allowed; a variable is unset only if it is set.",
    ),
    "no_gpu_direct": Objection(
        "NCCL's log says NET/IB without GDRDMA",
        "nvidia-peermem is not needed with DMA-BUF, and is not in every driver.",
        "The commands show what is loaded; the decision is the administrator's.",
    ),
    "clocks_held_down": Objection(
        "a GPU at 91 °C, held down by heat",
        "None: it reads.",
        "It reads.",
    ),
    "power_limit_lowered": Objection(
        "400 W enforced, 700 W by default",
        "The rack has no more power: the cap is the site's.",
        "A command only where the driver was told the lower limit, the card allows the default, "
        "and the machine is one's own without a file that sets GPUs up; else advice to ask.",
    ),
    "clocks_set_low": _row("1,200 MHz set, 1,980 by default", _CONFIGURED),
    "persistence_off": Objection(
        "persistence mode off",
        "Services of a node are enabled in its image, and not by hand.",
        "It is the administrator's; withheld in jobs, pods and on nodes of a scheduler.",
    ),
    "memory_errors": Objection(
        "two uncorrected errors since the driver was loaded, no row waiting",
        "A reset ends the jobs on the GPU and fails with NVLinks; old errors need none.",
        "The reset is offered only where rows wait for it, no process is on the GPU, it has no "
        "NVLinks, and nobody else works on the machine.",
    ),
    "pcie_link_narrow": Objection(
        "4 of 16 lanes while the GPU is busy",
        "lspci -vv needs root.",
        "It says so, and changes nothing; in a job it is left out.",
    ),
    "launch_blocking": _row("CUDA_LAUNCH_BLOCKING=1", _SHELL),
    "nccl_verbose": _row("NCCL_DEBUG=INFO", _SHELL),
    "distributed_debug": _row("TORCH_DISTRIBUTED_DEBUG=DETAIL", _SHELL),
    "no_memory_caching": _row("PYTORCH_NO_CUDA_MEMORY_CACHING=1", _SHELL),
    "tf32_forbidden": _row("NVIDIA_TF32_OVERRIDE=0", _GUARD),
    "compile_disabled": _row("TORCHDYNAMO_DISABLE=1", _GUARD),
    "compile_debug": _row("TORCH_LOGS=dynamo", _SHELL),
    "library_verbose": _row("ONEDNN_VERBOSE=1", _SHELL),
    "malloc_debug": _row("MALLOC_PERTURB_=165", _SHELL),
    "python_debug": _row("PYTHONDEVMODE=1", _SHELL),
    "modules_loaded_eagerly": _row("CUDA_MODULE_LOADING=EAGER", _SHELL),
    "peer_access_disabled": _row("NCCL_P2P_DISABLE=1", _GUARD),
    "nccl_choice_forced": _row("NCCL_ALGO=Ring", _GUARD),
    "gpus_hidden": Objection(
        "CUDA_VISIBLE_DEVICES is empty, one GPU",
        "Without it a job takes the GPUs of other jobs.",
        "In a job it is advice to ask for GPUs; on a shared machine the command only shows them.",
    ),
    "data_on_network": Objection(
        "data on NFS, 40 % of a step waits for input",
        "rsync of millions of files overloads the file server, and fills a disk of all users.",
        "Advice without a command: pack files, or use the folder that the scheduler gives a job.",
    ),
    "disk_nearly_full": Objection(
        "5 GiB free",
        "du on Lustre or NFS overloads the metadata server.",
        "On a network file system the command is df, and the advice to ask for the quota; "
        "elsewhere it walks at the lowest priority.",
    ),
    "data_on_turning_disk": Objection(
        "data on a spinning disk, 40 % of a step waits for input",
        "rsync fills the system's SSD.",
        "Advice without a command.",
    ),
    "ssh_passwords": Objection(
        "sshd listens and does not forbid passwords",
        "Users of a login node without a key are locked out, the one who asks as well.",
        "Offered only where one person has an account, no directory holds more, nobody else is at "
        "work, no scheduler is here, and that person's key is in place; else advice.",
    ),
    "ports_open": Objection(
        "Ray's dashboard listens to the whole network",
        "A firewall rule ends the training that meets at the port, and is not the user's.",
        "No rule is ever offered: the command shows who listens, and the advice is to listen on "
        "127.0.0.1, or on a network of one's own machines where ranks meet.",
    ),
    **{code: Objection(*row) for code, row in NODE_OBJECTIONS.items()},
}


@dataclass(frozen=True, slots=True)
class OnceWrong:
    """A command that was wrong on somebody's machine.

    Attributes:
        code: the check.
        planted: the machine.
        then: the command that was shown there.
        facts: the machine, for the check.
    """

    code: str
    planted: str
    then: str
    facts: CheckFacts


_SLURM = MachineSite(scheduler="slurm", in_job=True, serves_jobs=True)
_LOGIN = MachineSite(scheduler="slurm", num_others=30)
_DOCKER0 = Interface(
    name="docker0",
    is_up=True,
    is_hardware=False,
    speed_bits_per_s=1e10,
    networks=("172.17.0.1/16",),
)
_MEETS = make_facts(interfaces=(SLOW, FAST))
_SPACE = make_space(folder="/lustre/me", free_bytes=5 * GIB)
_LUSTRE = (Mount(folder="/lustre", kind="lustre", source="s", is_network=True),)

ONCE_WRONG: tuple[OnceWrong, ...] = (
    OnceWrong(
        "slow_interface",
        "a card of 1 Gb/s named by NCCL_SOCKET_IFNAME, and docker0, which says 10 Gb/s",
        "export NCCL_SOCKET_IFNAME=docker0 GLOO_SOCKET_IFNAME=docker0",
        with_variable(make_facts(interfaces=(SLOW, _DOCKER0)), NCCL_SOCKET_IFNAME="eth0"),
    ),
    OnceWrong(
        "slow_interface",
        "eth0 (1 Gb/s) named, eth1 has 100 Gb/s, nothing says where the other machines are",
        "export NCCL_SOCKET_IFNAME=eth1 GLOO_SOCKET_IFNAME=eth1",
        with_variable(_MEETS, NCCL_SOCKET_IFNAME="eth0"),
    ),
    OnceWrong(
        "slow_interface",
        "the same, with MASTER_ADDR=10.1.7.1 in the network of eth1: this one is right",
        "export NCCL_SOCKET_IFNAME=eth1 GLOO_SOCKET_IFNAME=eth1",
        with_variable(_MEETS, NCCL_SOCKET_IFNAME="eth0", MASTER_ADDR="10.1.7.1"),
    ),
    OnceWrong(
        "rdma_unused",
        "eight active HCAs, NCCL's log says Socket",
        "export NCCL_IB_HCA=mlx5_0",
        make_facts(
            rdma=tuple(replace(ACTIVE, name=f"mlx5_{i}") for i in range(8)),
            system=FILES,
            nccl_log=make_log(network="Socket"),
        ),
    ),
    OnceWrong(
        "ports_open",
        "port 29500 listens to the network: a training meets there",
        "sudo ufw deny 29500/tcp",
        make_facts(ports=(Port(number=29500, is_local=False),)),
    ),
    OnceWrong(
        "architecture_not_built",
        "a V100 and torch 2.13.0+cu130, which has no code for it",
        "/opt/env/bin/python -m pip install --upgrade torch",
        on_gpu(
            make_gpu(name="Tesla V100", compute_capability="7.0"),
            software=make_software(architectures=("sm_75", "sm_80", "sm_90")),
        ),
    ),
    OnceWrong(
        "memory_errors",
        "one error long ago on a GPU that trains",
        "sudo nvidia-smi --gpu-reset -i 0",
        on_gpu(state=replace(GPU_STATE, num_ever=1, num_processes=1, busy_fraction=0.97)),
    ),
    OnceWrong(
        "affinity_across_nodes",
        "one GPU near node 1, torch 2.8",
        "numactl --cpunodebind=0 --membind=0 python train.py",
        on_gpu(
            make_gpu(numa_node=1, cpus="4-7"),
            numa=NODES,
            software=make_software(torch="2.8.0+cu128"),
        ),
    ),
    OnceWrong(
        "ssh_passwords",
        "a login node of Slurm's with 30 users",
        "echo 'PasswordAuthentication no' | sudo tee /etc/ssh/sshd_config.d/00-keys-only.conf",
        make_facts(
            ports=(Port(number=22, is_local=False),),
            sshd=Sshd(file="/etc/ssh/sshd_config", has_drop_ins=True, has_own_key=True),
            site=_LOGIN,
        ),
    ),
    OnceWrong(
        "cores_far_from_gpu",
        "a job of Slurm's with cores 0 to 3, the GPU near 4 to 7",
        "taskset --cpu-list 4-7 python train.py",
        on_gpu(
            make_gpu(cpus="4-7"),
            limits=limited(cpus="0-3"),
            system=make_system(cpuset="0-3"),
            site=_SLURM,
        ),
    ),
    OnceWrong(
        "power_limit_lowered",
        "500 W enforced by the rack's controller, 700 W asked of the driver",
        "sudo nvidia-smi -i 0 -pl 700",
        on_gpu(
            state=replace(
                GPU_STATE,
                power_limit_w=500.0,
                requested_power_limit_w=700.0,
                max_power_limit_w=700.0,
            )
        ),
    ),
    OnceWrong(
        "gpus_hidden",
        "a job of Slurm's that was given no GPU",
        "unset CUDA_VISIBLE_DEVICES",
        with_variable(on_gpu(make_gpu(), make_gpu(1)), CUDA_VISIBLE_DEVICES="", SLURM_JOB_ID="7"),
    ),
    OnceWrong(
        "swap_in_use",
        "4 GiB in swap, nothing comes back",
        "sudo swapoff -a && sudo swapon -a",
        make_facts(
            ram=Ram(total_bytes=64 * GIB, swap_bytes=8 * GIB),
            system=make_system(swap_used_bytes=4 * GIB),
        ),
    ),
    OnceWrong(
        "disk_nearly_full",
        "5 GiB left on Lustre",
        "du -xh --max-depth=2 /lustre/me | sort -h | tail -20",
        make_facts(system=make_system(spaces=(_SPACE,)), mounts=_LUSTRE),
    ),
    OnceWrong(
        "group_memory_tight",
        "15 of 16 GiB of a user's group in use on a shared machine",
        "systemd-run --user --scope -p MemoryMax=32G python train.py",
        make_facts(
            limits=limited(memory_bytes=16 * GIB),
            system=make_system(group_used_bytes=15 * GIB),
            site=MachineSite(num_others=3),
        ),
    ),
    OnceWrong(
        "container_without_gpus",
        "a pod without GPUs on a node that has some",
        "kubectl set resources deployment/NAME --limits=nvidia.com/gpu=1",
        without_driver(
            of_inventory={"limits": limited(container="kubernetes")},
            site=MachineSite(scheduler="kubernetes", in_job=True),
        ),
    ),
)
"""Commands of the first version of these checks, and the machines on which they did harm."""
