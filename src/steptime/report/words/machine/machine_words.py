"""Words of the machine's report: what a machine word means to a person."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from steptime.core.units import format_bytes
from steptime.machine.values.ceiling_values import Ceiling

PARTS: Mapping[str, str] = {
    "gpus": "GPUs",
    "cpu_model": "the processor's name",
    "caches": "caches",
    "flags": "instruction sets",
    "memory": "memory",
    "numa": "NUMA nodes",
    "network": "network interfaces",
    "disks": "disks",
    "mounts": "mounts",
}

REASONS: Mapping[str, str] = {
    "not_told": "this system does not tell",
    "no_binding": "the library that asks NVIDIA's driver (nvidia-ml-py) is not installed",
    "no_count": "the driver does not say how many there are",
    "some_do_not_answer": "the driver does not answer for some of them",
    "driver_gave_no_answer": "the driver gave no answer",
    "nvml_error_9": "the driver is not loaded (NVML error 9)",
    "nvml_error_12": "the driver's library was not found (NVML error 12)",
    "nvml_error_18": "driver and library are of different versions (NVML error 18)",
    "no_torch": "no torch is installed for this Python",
    "torch_broken": "its torch cannot be imported",
    "old_python": "this Python is older than 3.10",
    "not_started": "this Python could not be started",
    "no_answer": "this Python gave no answer",
    "interrupted": "it was interrupted",
    "out_of_time": "the time was up",
    "bench_failed": "the process that measures failed",
    "not_supported": "this torch has it not for this device",
    "no_repetitions": "the time was up",
    "not_enough_memory": "four times the caches are more than a sixteenth of the memory available",
    "not_writable": "the store cannot be written",
    "no_space": "less than 320 MiB are free there",
    "no_store": "there is no store, and no file of 16 MiB or more among the data",
    "data_elsewhere": "the data lies on another file system than the store, without a file "
    "of 16 MiB or more to read",
    "not_readable": "the largest file of the data cannot be read",
    "no_distributed": "this torch has no torch.distributed",
    "ranks_missing": "not all ranks came together in time",
    "ranks_failed": "the processes that were started as ranks failed",
}
"""The numbers are those of nvmlReturn_t in nvml.h."""

DOUBTS: Mapping[str, str] = {
    "others_busy": "measured while other programs ran",
    "stolen": "measured while the hypervisor took cores away",
    "throttled": "measured while the cores were too hot",
    "device_busy": "measured while others used the GPU",
    "spread": "its repetitions differ too much",
    "below_others": "another ceiling makes it impossible",
    "above_datasheet": "above what the device can do",
    "below_datasheet": "far below what the device can do",
    "exceeded": "a run reached more",
    "other_state": "measured in another state of the machine",
    "threads": "not measured with so many threads",
}
"""Why a ceiling is provisional."""

AGAIN = "Once the machine is quiet, `steptime machine --fresh` takes them again."

KINDS: Mapping[str, str] = {
    "matmul": "matmul",
    "copy": "copy",
    "triad": "triad",
    "h2d": "host to device",
    "d2h": "device to host",
    "disk_sequential": "disk, in sequence",
    "disk_random": "disk, at random",
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
}


def describe_kind(ceiling: Ceiling) -> str:
    """Say what was measured, without the device."""
    kind = KINDS.get(ceiling.kind, ceiling.kind)
    if ceiling.kind == "matmul":
        return f"{kind} {ceiling.dtype}"
    return kind if ceiling.variant is None else f"{kind}, {ceiling.variant}"


def describe_setting(ceiling: Ceiling) -> str:
    """Say with which settings the rate was reached."""
    setting = ceiling.setting
    if setting is None:
        return ""
    parts = []
    if setting.shape is not None:
        # The second matrix is transposed, as a layer stores its weights.
        m, n, k = setting.shape
        shape = f"{m}³" if m == n == k else f"{m}×{n}×{k}"
        parts.append(shape + ("ᵀ" if setting.layout == "nt" else ""))
    if setting.payload_bytes is not None:
        parts.append(format_bytes(setting.payload_bytes))
    if setting.num_threads is not None:
        parts.append(f"{setting.num_threads} thread" + ("" if setting.num_threads == 1 else "s"))
    return ", ".join(parts)


def describe_doubts(words: Iterable[str]) -> str:
    """Say why a ceiling is provisional."""
    return ", ".join(DOUBTS.get(word, word.replace("_", " ")) for word in words)


def describe_reason(word: str) -> str:
    """Say why something is not known."""
    return REASONS.get(word, word.replace("_", " ").replace("nvml", "NVML"))


def describe_next(word: str) -> str:
    """Say what to do if not everything was measured."""
    if word in ("no_torch", "torch_broken", "old_python", "not_started", "no_answer"):
        return "Name the Python of your training: steptime machine --python FILE"
    if word == "out_of_time":
        return "Give it more: steptime machine --budget 3m"
    return "Try again: steptime machine --fresh"
