"""One function for each lever that can be placed: from its settings to changes of the source.

In: settings and a `Ground`. Out: changes, and what of it a person must do. A lever that is not in
`EDITS` is given as a sentence with its lines (`Lever.edit`); one that sets variables is in the
launch line. To add an edit, write a function like its neighbors' and name it here.
"""

from __future__ import annotations

from collections.abc import Mapping

from steptime.patch.edits.beginning import (
    multiply_by_onednn,
    set_matmul_precision,
    try_algorithms,
)
from steptime.patch.edits.calls_of_models import compute_in_bf16, lay_channels_last
from steptime.patch.edits.loaders import (
    cache_samples,
    fetch_whole_batches,
    preload_samples,
    set_workers,
    trim_batches,
)
from steptime.patch.edits.models import compile_models
from steptime.patch.edits.optimizers import leave_foreach, set_implementation
from steptime.patch.edits.own_loops import take_out_loops
from steptime.patch.edits.placing import Edit
from steptime.patch.edits.switches import (
    collect_at_updates,
    compile_dynamic,
    set_exchange,
    take_out_compile,
)
from steptime.patch.edits.written_attention import fuse_attention
from steptime.patch.edits.written_gelu import fuse_gelu

EDITS: Mapping[str, Edit] = {
    "autocast": compute_in_bf16,
    "channels_last": lay_channels_last,
    "compile": compile_models,
    "cudnn_benchmark": try_algorithms,
    "dataloader": set_workers,
    "dataset_cache": cache_samples,
    "ddp_options": set_exchange,
    "dynamic_shapes": compile_dynamic,
    "fused_attention": fuse_attention,
    "fused_gelu": fuse_gelu,
    "fused_optimizer": set_implementation,
    "gc_control": collect_at_updates,
    "matmul_library": multiply_by_onednn,
    "matmul_precision": set_matmul_precision,
    "no_compile": take_out_compile,
    "no_foreach": leave_foreach,
    "preloaded_samples": preload_samples,
    "trim_padding": trim_batches,
    "vectorized_loops": take_out_loops,
    "whole_batch_fetch": fetch_whole_batches,
}
"""By the lever's name."""

_IN_THE_LOOP = "The loop itself is another one then, and only you know what else it does."
_IN_THE_MODEL = "It is in the `forward` of a model, which may be written in many ways."
_IN_THE_DATA = "How your data set reads and changes its samples is yours to write."
_ANOTHER_OPTIMIZER = (
    "Another class makes the optimizer: its groups and arguments are yours to choose, and states "
    "that the old one saved do not fit it."
)
NO_EDITS: Mapping[str, str] = {
    "activation_checkpointing": _IN_THE_MODEL,
    "ddp_bf16": "It stands behind the model's name in each rank, once, before the training.",
    "ddp_powersgd": "It stands behind the model's name in each rank, once, before the training.",
    "ddp_no_sync": _IN_THE_LOOP,
    "decoded_cache": _IN_THE_DATA,
    "frozen_cache": "Which data the outputs are kept beside is yours to say; the loop then reads "
    "them in the place of the inputs.",
    "fused_rnn": "The cell's class becomes another one, and saved states get other names.",
    "fused_sampling": "The loader is imported from another module, which your Python must have.",
    "gradient_transform": "The training imports `steptime.methods` then, which must be installed "
    "there; the line stands behind the one that makes the optimizer.",
    "jpeg_decoder": _IN_THE_DATA,
    "low_memory_states": _ANOTHER_OPTIMIZER,
    "offload_activations": _IN_THE_MODEL,
    "optimizer_in_backward": _IN_THE_LOOP,
    "other_optimizer": _ANOTHER_OPTIMIZER,
    "maxk": _IN_THE_MODEL,
    "larger_batch": "How many steps the loop then makes, and its schedule, are yours to say.",
    "length_grouping": "The lengths of rows are yours to say, and so is the loader's sampler.",
    "micro_batches": _IN_THE_LOOP,
    "module_precision": _IN_THE_MODEL,
    "needed_gradients": _IN_THE_LOOP,
    "no_checkpointing": _IN_THE_MODEL,
    "pinned_copies": "Each copy to the device in your loop needs its argument.",
    "prefetch_to_device": _IN_THE_LOOP,
    "prepared_data": "The data set becomes another one, and its transforms move into it.",
    "process_binding": "The numbers of cores are those of one machine; they go before the command.",
    "quantization_aware": "It acts while the training runs: put `steptime run --recipe` before it.",
    "quantized_training": "Which layers gain is yours to say; it stands before `torch.compile`.",
    "selective_checkpointing": _IN_THE_MODEL,
    "sparse_input": "Which matrix stays the same in all steps is yours to say; each dropout of it "
    "becomes the function in the lines.",
    "wide_convolutions": _IN_THE_MODEL,
}
"""Why a lever has no edit; its lines are printed."""

VARIABLES: Mapping[str, Mapping[str, str]] = {"num_threads": {"OMP_NUM_THREADS": "num_threads"}}
"""Levers of the guest that a variable replaces: its name, and the setting that it takes."""
