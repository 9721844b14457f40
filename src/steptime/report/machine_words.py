"""Words of the machine's report: what a machine word means to a person."""

from __future__ import annotations

from collections.abc import Mapping

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
}
"""Numbers are those of nvmlReturn_t in nvml.h."""


def describe_reason(word: str) -> str:
    """Why something is not known."""
    return REASONS.get(word, word.replace("_", " ").replace("nvml", "NVML"))
