"""What the record says of a process that trains with torch: who it is, what it computes on."""

from __future__ import annotations

import os
from typing import Any

from ...timeline.recorder import Recorder
from ...watchers.inputs import find_versions
from ...watchers.kinship import describe_kinship, whole_number


def make_head(torch: Any, recorder: Recorder) -> dict[str, Any]:
    """Return who this stream is, and what it computes on."""
    has_device = torch.cuda.is_initialized()
    return {
        **(recorder.who or describe_kinship(torch)),
        "local_rank": whole_number(os.environ.get("LOCAL_RANK")) or 0,
        "torch": str(torch.__version__),
        "device": "cuda" if has_device else "cpu",
        **(describe_device(torch) if has_device else {"device_name": None}),
        "num_threads": torch.get_num_threads(),
        "versions": find_versions(),
        "answers": list(recorder.answers),
    }


def describe_device(torch: Any) -> dict[str, Any]:
    """Return the name of the current device, and what tells parts of one name apart."""
    found = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "device_name": torch.cuda.get_device_name(),
        "device_bytes": getattr(found, "total_memory", None),
        "num_multiprocessors": getattr(found, "multi_processor_count", None),
    }


def note_kinship(torch: Any, recorder: Recorder, optimizer: Any) -> None:
    """Note who this process is among others while its first optimizer steps.

    When the head is written, the process group and the optimizer may be gone.
    """
    recorder.who = describe_kinship(torch, optimizer)
