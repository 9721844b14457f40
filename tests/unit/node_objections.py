"""For each check of a node: what is planted, what an administrator could object, and the answer."""

from __future__ import annotations

from collections.abc import Mapping

_READS = "It reads, and changes nothing; what root alone may read is left out in a job."

NODE_OBJECTIONS: Mapping[str, tuple[str, str, str]] = {
    "gpu_off_the_bus": (
        "two GPUs known to the driver, one does not answer, Xid 79 an hour ago",
        "A restart ends every job on the node.",
        "No restart is offered: the commands read, and whoever looks after the hardware decides.",
    ),
    "gpu_errors_logged": (
        "Xid 95 an hour ago",
        "A reset ends jobs, fails with NVLinks, and is not needed for one error long ago.",
        "No reset is ever offered. An error of more than a day ago is a remark without advice, and "
        "where errors stayed within rows of memory the GPU's own counters decide.",
    ),
    "program_errors_logged": (
        "Xid 31 an hour ago",
        "The program is another user's; compute-sanitizer takes a node for hours.",
        "It is a remark that says so, no name of a process is kept, and outside of jobs the "
        "command is withheld on a scheduler's machine.",
    ),
    "pcie_link_slow": (
        "generation 1 of 5 while the GPU is busy",
        "A link that rests trains down on purpose.",
        "Only a GPU that is busy at that moment is judged; of idle ones it says that it cannot "
        "know.",
    ),
    "gpu_memory_taken": (
        "another user's process holds 70 of 80 GiB of one of two GPUs",
        "Users kill what they take for left behind, or flee to GPUs of other jobs.",
        "Nothing is ended. Another GPU is named only on a machine without a scheduler, and only "
        "among those that this shell may use.",
    ),
    "nvlink_down": (
        "one of four GPUs has none of 18 links",
        "Cards with bridges between pairs have such GPUs on purpose, and MIG rests the links.",
        "It fires only for the few among GPUs of one name, without MIG; it reads.",
    ),
    "fabric_not_ready": (
        "the fabric's state is in progress",
        "Starting the fabric manager again ends the programs on all GPUs.",
        "Advice that says so; the commands read.",
    ),
    "mig_on": (
        "a GPU is divided",
        "The instances belong to other jobs.",
        "Advice without a command that changes the mode.",
    ),
    "rdma_port_slow": (
        "one of two ports with one lane of four",
        "A slower card, or a slower switch, may be on purpose.",
        "Lanes and ports of one type are compared; slower than its chip is sold with is a remark. "
        + _READS,
    ),
    "rdma_port_not_active": (
        "one of two ports is in the state INIT",
        "Ports without a cable are spare.",
        "Ports that are disabled, or whose kind is used nowhere here, do not fire; others that are "
        "down are a remark.",
    ),
    "mtu_small": (
        "100 Gb/s with packets of 1,500 bytes",
        "One node with larger packets than its switch loses them.",
        "Advice without a command that changes the size; the command sends three packets.",
    ),
    "interrupts_crowded": (
        "three interrupts of a card of 100 Gb/s on one core",
        "irqbalance is off on purpose where interrupts are pinned.",
        "Advice that names both ways, and that they exclude each other; it fires where neither "
        "spread them.",
    ),
    "gpu_direct_not_loaded": (
        "an active HCA, NVIDIA's closed modules, no nvidia_peermem",
        "The module is not needed with DMA-BUF, and fails without NVIDIA's network drivers.",
        "It fires only where DMA-BUF is not to be had, and loading is advice that says what it "
        "needs.",
    ),
    "peers_redirected": (
        "a bridge above two GPUs redirects",
        "Access control keeps virtual machines apart.",
        "Never in a guest; advice that says so, and no register is written.",
    ),
    "iommu_translates": (
        "two GPUs without NVLink behind a translating IOMMU",
        "A line of the kernel's is part of the node's image, and a host of guests needs the IOMMU.",
        "Never in a guest; advice without a command that changes it.",
    ),
    "cores_clocked_low": (
        "acpi-cpufreq with the governor powersave",
        "The site saves power on purpose, and with intel_pstate powersave is right.",
        "With drivers that choose themselves it does not fire. The governor is offered only on a "
        "machine of one's own; in a job the option of srun is advice.",
    ),
    "time_stolen": (
        "a guest with 20 % of its time stolen",
        "None: it reads.",
        "It reads.",
    ),
    "processes_few": (
        "100 processes in the control group, four ranks with workers",
        "Users must not raise their own limits.",
        "The shell's limit is raised up to the hard one; a group's limit is a matter for whoever "
        "set it.",
    ),
    "caches_on_network": (
        "Triton's cache in a home on NFS, several machines",
        "The site put the cache there, and /tmp counts as a job's memory.",
        "Only a default of the library is moved, for one shell, to a disk that is seen to be the "
        "node's own; what a variable names stays.",
    ),
}
