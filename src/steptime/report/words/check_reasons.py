"""Words that all checks share: costs, certainty, who runs a command, what it disrupts, reasons."""

from __future__ import annotations

from collections.abc import Mapping

COST_OF: Mapping[str, str] = {
    "step": "a step",
    "matmul": "matrix products of float32",
    "attention": "attention",
    "copies": "copies",
    "communication": "what is sent between machines",
    "open": "opening files",
    "start": "the start of a run",
}

CERTAINTY: Mapping[str, str] = {
    "certain": "certain",
    "likely": "likely",
    "possible": "possible: it depends on the script, or is on purpose",
}

RUNNERS: Mapping[str, str] = {
    "user": "by you",
    "root": "by root",
    "administrator": "by whoever administers the machine",
}

DISRUPTIONS: Mapping[str, str] = {
    "nothing": "disrupts nothing",
    "shell": "changes this shell and what it starts",
    "load": "trains, which takes cores and GPUs",
    "packages": "changes the packages of this Python for whatever uses it",
    "machine": "changes the machine for all its users",
    "logins": "can lock users out",
    "trainings": "stops trainings on those devices",
    "node": "ends everything on the machine: it restarts",
}

PLACES: Mapping[str, str] = {"here": "", "host": "on the host of this container"}

REASONS: Mapping[str, str] = {
    "no_nvidia_driver": "no driver of NVIDIA's in the kernel",
    "no_nvidia_gpu": "no GPU of NVIDIA's",
    "gpu_too_old": "a GPU that no current torch has code for",
    "no_gpu": "no GPU",
    "no_amd_gpu": "no GPU of AMD's",
    "one_gpu": "one GPU",
    "one_rank": "one rank",
    "one_thread": "one thread",
    "one_numa_node": "one NUMA node",
    "one_interface": "one network interface",
    "no_hardware_interface": "no network interface with hardware behind it",
    "load_of_other_cores": "others' load is told of all cores, and this shell may use some of them",
    "no_rdma": "no active RDMA device",
    "no_traffic_over_rdma": "NCCL sends nothing over RDMA",
    "no_amx": "a processor without AMX for bf16",
    "no_tf32": "GPUs before Ampere",
    "no_ecc": "memory without error correction",
    "no_limit": "no limit of memory",
    "no_quota": "no quota of cores",
    "no_swap": "no swap",
    "no_container": "not in a container",
    "no_local_disk": "no local disk under the data",
    "no_ssh_server": "no SSH server that others reach",
    "not_set": "none of the variables is set",
    "torch_without_cuda": "a torch without CUDA",
    "driver_is_the_hosts": "in a container the driver is the host's",
    "hidden_by_a_variable": "CUDA_VISIBLE_DEVICES decides what is seen",
    "container_has_its_own_network": "a container has a network of its own",
    "run_without_gpu": "the last run used no GPU",
    "few_convolutions": "the last run has few convolutions",
    "shapes_change": "the shapes of the last run's inputs change, or were not seen",
    "no_run": "there is no run in this store: steptime run -- python train.py makes one",
    "run_not_readable": "the last run cannot be read",
    "work_not_counted": "the work of the last run was not counted",
    "faults_not_told": "page faults of the last run were not seen",
    "no_nccl_log": "there is no log of NCCL: NCCL_DEBUG=INFO NCCL_DEBUG_FILE=nccl.log writes one, "
    "and --nccl-log names it",
    "log_cannot_be_read": "the log of NCCL cannot be read",
    "log_is_not_of_nccl": "the log has no line of NCCL's",
    "log_without_channels": "the log has no channels: it needs NCCL_DEBUG=INFO from the start",
    "no_torch": "no torch in that Python: --python names another",
    "no_python": "no Python on the PATH: --python names one",
    "torch_does_not_load": "torch does not load in that Python",
    "python_does_not_start": "that Python does not start",
    "no_answer_in_time": "that Python gave no answer in time",
    "torch_did_not_tell": "torch did not say",
    "no_binding": "the library that asks NVIDIA's driver (nvidia-ml-py) is not installed",
    "driver_gave_no_answer": "the driver gave no answer",
    "driver_not_told": "the driver's version is not known",
    "no_rule_for_this_cuda": "no rule is known for this CUDA",
    "no_figure_for_these_gpus": "no figure is known for such GPUs",
    "architecture_not_told": "the architecture is not known",
    "affinity_not_told": "the allowed cores are not known",
    "load_not_told": "the load of the machine is not known",
    "file_system_not_told": "the file system is not known",
    "speeds_not_told": "the speeds of the interfaces are not known",
    "ports_not_told": "the kernel does not list the ports",
    "no_right_to_read": "the file may not be read by this user",
    "not_told": "this system does not say",
    "failed": "the check itself failed",
}
