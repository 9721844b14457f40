"""One function for each lever that can be placed: from its settings to changes of the source.

In: settings and a `Ground`. Out: changes, and what of it a person must do. A lever that is not in
`EDITS` is said as a sentence with its lines (`Lever.edit`); one that sets variables is in the
launch line. To add an edit, write a function like its neighbors' and name it here.
"""

from __future__ import annotations

from collections.abc import Mapping

from steptime.patch.edits.beginning import flush_denormals, set_matmul_precision, try_algorithms
from steptime.patch.edits.calls_of_models import compute_in_bf16, lay_channels_last
from steptime.patch.edits.loaders import (
    cache_samples,
    fetch_whole_batches,
    leave_unpinned,
    set_workers,
)
from steptime.patch.edits.models import compile_models
from steptime.patch.edits.optimizers import set_implementation
from steptime.patch.edits.placing import Edit

EDITS: Mapping[str, Edit] = {
    "autocast": compute_in_bf16,
    "channels_last": lay_channels_last,
    "compile": compile_models,
    "cudnn_benchmark": try_algorithms,
    "dataloader": set_workers,
    "dataset_cache": cache_samples,
    "flush_denormal": flush_denormals,
    "fused_optimizer": set_implementation,
    "matmul_precision": set_matmul_precision,
    "no_pin_memory": leave_unpinned,
    "whole_batch_fetch": fetch_whole_batches,
}
"""By the lever's name."""

VARIABLES: Mapping[str, Mapping[str, str]] = {"num_threads": {"OMP_NUM_THREADS": "num_threads"}}
"""Levers of the guest that a variable replaces: its name, and the setting that it takes."""
