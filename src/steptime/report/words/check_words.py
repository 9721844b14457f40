"""Words of the checks: what each looks at, what was seen, why it matters, by its machine word.

`seen` are parts of a sentence; a part is said where all that it names was seen. Quantities are
written by the unit in their name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Words:
    """Title of a check that fires, what was seen, and why it matters."""

    title: str
    seen: tuple[str, ...]
    why: str


_SOFTWARE: Mapping[str, Words] = {
    "driver_missing": Words(
        "NVIDIA's driver is missing",
        ("{num_gpus} GPU(s) of NVIDIA's on the PCI bus, and no driver that speaks for them",),
        "Without it no program can use the GPU: a script trains on the processor, or ends.",
    ),
    "driver_silent": Words(
        "NVIDIA's driver is there and does not answer",
        (
            "driver and library are of different versions ({mismatch})",
            "asked, it says: {silence}",
        ),
        "After an update the old driver stays in the kernel until it is loaded again; a GPU that "
        "fell off the bus can silence it too. CUDA cannot start.",
    ),
    "cpu_build_beside_gpu": Words(
        "torch was built without CUDA, beside a GPU",
        ("torch {torch}", "{num_gpus} GPU(s) of NVIDIA's"),
        "This torch cannot use the GPU: everything runs on the processor.",
    ),
    "driver_too_old": Words(
        "the driver is too old for torch's CUDA",
        ("driver {driver}", "torch with CUDA {cuda}, which needs {lowest_driver}"),
        "Within a major release CUDA runs on any driver from a lowest one on; this one is below "
        "it, so CUDA does not start.",
    ),
    "torch_sees_no_gpu": Words(
        "torch sees no GPU though the driver does",
        ("{num_gpus} GPU(s) answer the driver, none torch {torch}", "{error}"),
        "A script that asks whether there is a GPU is told no, and trains on the processor.",
    ),
    "architecture_not_built": Words(
        "torch holds no code for this GPU",
        ("{gpu} has capability {capability}", "torch {torch} has code for {architectures}"),
        "The first kernel ends with `no kernel image is available`.",
    ),
    "cudnn_differs": Words(
        "another cuDNN is loaded than torch was built with",
        ("built with {built}, loaded {loaded}",),
        "torch refuses a cuDNN of another major or an older minor version; most often "
        "LD_LIBRARY_PATH puts a system's one in front.",
    ),
    "cuda_packages_differ": Words(
        "NVIDIA's libraries are not those that torch asks for",
        ("{packages}",),
        "torch was tested with the versions it asks for. A newer NCCL or cuDNN may be meant; one "
        "that came with another package is not.",
    ),
    "torch_without_nccl": Words(
        "torch was built without NCCL, beside several GPUs",
        ("torch {torch}", "{num_gpus} GPUs"),
        "Ranks on GPUs can then only reduce by gloo, through the memory of the host.",
    ),
    "old_torch": Words(
        "a newer torch is known to be faster on such a GPU",
        ("torch {torch}",),
        "Before 2.2 attention ran without FlashAttention-2; from 2.11 to 2.12 the same training "
        "of one published model gained.",
    ),
}

_COMPUTE: Mapping[str, Words] = {
    "matmul_precision_highest": Words(
        "matrix products of float32 run in full precision",
        (
            "{fp32_fraction} of the FLOP of the last run were of float32 on {device}",
            "a script finds the precision at `{precision}` on {device}",
        ),
        "TF32 (GPU) or bf16 (CPU with AMX) multiply float32 several times faster with fewer bits "
        "of the mantissa: other rounding, so `tune` proves that the training holds.",
    ),
    "cudnn_benchmark_off": Words(
        "cuDNN does not try its algorithms, though shapes are fixed",
        (
            "convolutions are {convolution_fraction} of the FLOP of the last run",
            "its inputs were all {shape}",
            "the script names no cudnn.benchmark",
        ),
        "With shapes that stay, the fastest algorithm is found once in the first steps and used "
        "from then on.",
    ),
    "threads_over_cores": Words(
        "more threads than cores",
        ("{num_threads} threads in each of {num_ranks} process(es)", "{num_usable} usable cores"),
        "Threads of an operator wait for each other; those without a core hold up the rest. torch "
        "counts the cores of the machine, not those that a quota leaves.",
    ),
    "spin_waiting": Words(
        "threads spin while others use the cores",
        (
            "{num_threads} threads",
            "other processes kept {others_cores} of {num_cores} cores busy just now",
            "{run_others_cores} during the last run",
        ),
        "A thread that is done spins in the hope of more work, and keeps from its core the very "
        "thread that it waits for.",
    ),
    "cpu_quota_below_cores": Words(
        "a quota allows fewer cores than are seen",
        (
            "quota {quota_cores} cores, {num_cores} seen",
            "torch takes {num_threads} threads",
            "stopped in {throttled_fraction} of the quota's periods",
        ),
        "Who uses more is stopped for the rest of each period, all threads at once; programs size "
        "their pools by the cores they see.",
    ),
    "affinity_across_nodes": Words(
        "processes may run on any NUMA node",
        ("cores {cpus} span {num_spanned} of {num_nodes} nodes",),
        "Memory and GPU of the other socket are farther away. One process a node, bound to it, "
        "stays near.",
    ),
    "cores_far_from_gpu": Words(
        "the allowed cores are not those near the GPU",
        ("cores {cpus}", "{gpu}, nearest to cores {near}"),
        "Each launch and copy crosses from one socket to the other.",
    ),
    "threads_pinned_alike": Words(
        "a variable pins threads, and there are several processes",
        ("{name}={value}", "{num_ranks} rank(s) in the last run"),
        "Each process obeys the same list, so that all of them may share its first cores.",
    ),
    "default_allocator": Words(
        "the allocator gives memory back at each step, and fetches it again",
        ("{faults_per_step} page faults a step", "{fraction} of the step in the kernel"),
        "glibc returns large blocks to the system when they are freed; an allocator that keeps "
        "them has no page faults in the next step. An untuned one can be slower: `tune` tries.",
    ),
    "huge_pages_off": Words(
        "transparent huge pages are off",
        ("the kernel's setting is `{huge_pages}`",),
        "Large arrays then take 512 times as many entries of the translation cache, and programs "
        "that ask for huge pages get none.",
    ),
    "swap_in_use": Words(
        "memory comes back from swap",
        ("{used_bytes} in swap", "{in_bytes_per_s} come back"),
        "A page that was put aside is read from disk while the training waits for it.",
    ),
    "group_memory_tight": Words(
        "the container's memory is tight",
        (
            "limit {limit_bytes}",
            "{used_bytes} in use now",
            "{peak_bytes} at the peak of the last run",
            "{gpu_bytes} on the GPUs",
        ),
        "Above the limit the kernel kills a process of the group, most often a DataLoader worker. "
        "A rule of thumb wants as much host memory as the GPUs have.",
    ),
    "numa_balancing_on": Words(
        "the kernel moves memory between nodes by itself",
        ("{num_nodes} NUMA nodes", "kernel.numa_balancing is on"),
        "AMD's guide for its accelerators switches it off: the moving takes time from the run.",
    ),
}

_LIMITS: Mapping[str, Words] = {
    "shm_small": Words(
        "/dev/shm is small",
        ("{shm_bytes}",),
        "DataLoader workers hand batches over through it, and NCCL its buffers. A full one ends "
        "the run with a bus error. Docker's default is 64 MiB.",
    ),
    "locked_memory_low": Words(
        "little memory may be locked",
        ("limit {locked_bytes}",),
        "RDMA locks the memory that it reads and writes; NCCL fails to register its buffers.",
    ),
    "open_files_low": Words(
        "few files may be open",
        ("limit {num_open_files}",),
        "Workers share each tensor by a file; many of them end with `too many open files`.",
    ),
    "stack_small": Words(
        "the stack is small",
        ("limit {stack_bytes}",),
        "Deep recursions of libraries end with a segmentation fault; NVIDIA starts its containers "
        "with 64 MiB.",
    ),
    "container_without_gpus": Words(
        "the container was started without its GPUs",
        ("in {container}", "{num_gpus} GPU(s) of NVIDIA's on the bus, none passed in"),
        "The machine has GPUs that this container may not use, so the training runs on the "
        "processor. In Kubernetes the plugin nvidia-device-plugin hands out nvidia.com/gpu.",
    ),
}

_NETWORK: Mapping[str, Words] = {
    "rdma_unused": Words(
        "RDMA is there, and the traffic goes over sockets",
        (
            "{device} is active",
            "NCCL uses: {network}",
            "log {log}",
            "{absent} is not here, without which NCCL takes sockets",
        ),
        "Sockets go through the kernel and the processor, at the speed of the slower network.",
    ),
    "infiniband_disabled": Words(
        "a variable forbids RDMA to NCCL",
        ("{variables}",),
        "NCCL falls back to sockets, whatever the network could do.",
    ),
    "slow_interface": Words(
        "NCCL takes a slow interface, and there is a faster one",
        (
            "takes {taken}",
            "the fastest is {fastest}",
            "NCCL_SOCKET_IFNAME is {rule}",
            "interfaces: {interfaces}",
        ),
        "Without a rule NCCL takes those named ib*, else all but docker* and lo, in the system's "
        "order; a rule that fits none ends the run.",
    ),
    "gpu_ranks_on_gloo": Words(
        "ranks on GPUs reduce by gloo",
        ("{num_ranks} ranks on GPUs", "the script says {words}"),
        "gloo takes gradients through the memory of the host; NCCL goes from GPU to GPU.",
    ),
    "peers_through_host": Words(
        "GPUs with NVLink between them talk through the host",
        (
            "{transports}",
            "{shapes}",
            "network {network}",
            "{algorithms}",
            "log {log}",
        ),
        "SHM is what NCCL takes where peer access is forbidden: by a variable, by the PCI "
        "bridges' access control, or in a virtual machine.",
    ),
    "no_gpu_direct": Words(
        "RDMA does not reach into the GPU's memory",
        ("{transports}", "{shapes}", "{algorithms}", "log {log}"),
        "Without GPUDirect each message takes a detour through the memory of the host.",
    ),
}

_DEVICES: Mapping[str, Words] = {
    "clocks_held_down": Words(
        "GPUs hold their clocks down",
        (
            "GPU {gpus}",
            "{reasons}",
            "{temperature_c} °C",
            "in the last run from step {step} of rank {rank} on",
        ),
        "Heat, a fault, or a brake on power makes them slower; one slow GPU holds up all ranks.",
    ),
    "power_limit_lowered": Words(
        "the power limit is below the default",
        ("GPU {gpus}", "{limit_w} W, by default {default_w} W"),
        "Under full load the clock follows the power it may draw.",
    ),
    "clocks_set_low": Words(
        "clocks were set below the default",
        ("GPU {gpus}", "{clock_mhz} MHz, by default {default_clock_mhz} MHz"),
        "Fixed clocks make measurements steady and work slower.",
    ),
    "persistence_off": Words(
        "persistence mode is off",
        ("GPU {gpus}",),
        "The driver lets go of a GPU that nobody uses, and sets it up again at each start; clocks "
        "and limits that were set are lost.",
    ),
    "memory_errors": Words(
        "a GPU has memory errors that could not be corrected",
        (
            "GPU {gpus}",
            "{num_uncorrected} uncorrected since the driver was loaded, {num_ever} ever",
            "rows to be replaced: {rows}",
        ),
        "The process that meets one ends. Pending replacements are made at the next reset; failed "
        "ones are a case for the vendor.",
    ),
    "pcie_link_narrow": Words(
        "a GPU's PCIe link has fewer lanes than it could",
        ("GPU {gpus}", "{width} of {max_width}"),
        "Copies from and to the host, and between GPUs without NVLink, take so much longer. A "
        "link that sleeps may be narrow for the moment.",
    ),
}

_ENVIRONMENT: Mapping[str, Words] = {
    "launch_blocking": Words(
        "each launch waits for its kernel",
        ("{variables}",),
        "Host and GPU take turns in place of working side by side. It is there to debug.",
    ),
    "nccl_verbose": Words(
        "NCCL writes a log",
        ("{variables}",),
        "Its guide wants debug variables out of production; TRACE writes a line for each call.",
    ),
    "distributed_debug": Words(
        "torch.distributed checks each collective",
        ("{variables}",),
        "DETAIL compares shapes among all ranks before each collective, over gloo.",
    ),
    "no_memory_caching": Words(
        "each tensor asks the driver for its memory",
        ("{variables}",),
        "Every allocation and release on the GPU goes to the driver and waits for the device.",
    ),
    "tf32_forbidden": Words(
        "a variable forbids TF32",
        ("{variables}",),
        "It overrides whatever the script sets, in all of NVIDIA's libraries.",
    ),
    "compile_disabled": Words(
        "torch.compile does nothing",
        ("{variables}",),
        "Models that the script compiles run eagerly.",
    ),
    "compile_debug": Words(
        "torch.compile writes what it does",
        ("{variables}",),
        "Logs and dumped code make each compilation longer.",
    ),
    "library_verbose": Words(
        "a library writes a line for each call",
        ("{variables}",),
        "Each matrix product or convolution is timed and printed.",
    ),
    "malloc_debug": Words(
        "memory is checked at each allocation",
        ("{variables}",),
        "Each block is filled or verified as it is taken and freed.",
    ),
    "python_debug": Words(
        "Python runs in a debug mode",
        ("{variables}",),
        "Checks and traces of memory slow down each line of Python.",
    ),
    "modules_loaded_eagerly": Words(
        "all kernels of CUDA are loaded at the start",
        ("{variables}",),
        "They take memory of the GPU and time at the start, whether they are used or not.",
    ),
    "peer_access_disabled": Words(
        "a variable forbids the short ways between GPUs",
        ("{variables}",),
        "NCCL then goes through the memory of the host, or even the network.",
    ),
    "nccl_choice_forced": Words(
        "a variable forces NCCL's algorithm",
        ("{variables}",),
        "NCCL chooses by size and topology; what was best for one payload or machine is not for "
        "all.",
    ),
    "gpus_hidden": Words(
        "CUDA_VISIBLE_DEVICES hides GPUs",
        ("it is {value}", "{num_shown} of {num_gpus} GPUs are seen"),
        "What it does not name does not exist for CUDA; it may be meant.",
    ),
}

_DISK: Mapping[str, Words] = {
    "data_on_network": Words(
        "the data lies on a network file system",
        ("{folder} is on {kind}", "steps wait for input {input_wait_fraction} of their time"),
        "Each file that is opened is a question to a server. Few large files, or a copy on a local "
        "disk, ask less.",
    ),
    "disk_nearly_full": Words(
        "a disk is nearly full",
        (
            "{folder} ({what})",
            "{free_bytes} free of {total_bytes}",
            "{num_free} files may still be made",
        ),
        "A checkpoint that does not fit is lost, and often the run with it.",
    ),
    "data_on_turning_disk": Words(
        "the data lies on a disk that turns",
        ("{disk}", "{folder}"),
        "Samples in random order move its head for each of them.",
    ),
    "ssh_passwords": Words(
        "SSH takes passwords",
        ("{file}: PasswordAuthentication is {passwords}", "the server listens"),
        "Passwords of machines with GPUs are guessed all day long. See first that your key logs "
        "you in.",
    ),
    "ports_open": Words(
        "services of a training box listen to the whole network",
        ("ports {ports}",),
        "Some ask for no password: who reaches them reads the work, or runs code. A firewall may "
        "stand before them, which cannot be seen from here.",
    ),
}

WORDS: Mapping[str, Words] = {
    **_SOFTWARE,
    **_COMPUTE,
    **_LIMITS,
    **_NETWORK,
    **_DEVICES,
    **_ENVIRONMENT,
    **_DISK,
}
"""By the code of the check."""
