"""Example machines and scripts for levers: each lever applies in one of them.

The list of levers takes its settings from here, and the contract suite in `steptime.testing` asks
each lever about all of them.
"""

from __future__ import annotations

import dataclasses

from steptime.levers.base import BlockFacts, BlockOperator, Facts, LoaderFacts, OptimizerFacts
from steptime.levers.example_loaders import DIGITS, FILES, LOADER, NEIGHBORS, PLAIN, ROWS, TEXTS
from steptime.levers.rank_examples import DEVICES, RANKS

WINDOWS = """\
--- a/train.py
+++ b/train.py
@@ -20,2 +20,2 @@
     at = torch.randint(len(data) - 8, (64,))
-    x = torch.stack([data[i : i + 8] for i in at])
+    x = data.unfold(0, 8, 1).movedim(-1, 1)[at]
"""
"""Windows of a series that a script takes one by one."""

CPU = Facts(
    torch_version="2.9.0",
    capabilities=("amx_bf16", "avx512_bf16", "avx512_fp16"),
    num_cores=8,
    num_threads=8,
    available_bytes=16 << 30,
    matmul_precision="highest",
    has_convolution=True,
    has_batch_statistics=True,
    num_parameters=1_000_000,
    parameter_dtypes=("float32",),
    optimizers=(OptimizerFacts(name="AdamW", can_fuse=True, num_parameters=50),),
    loaders=(ROWS, FILES),
    libraries={
        "jemalloc": "/usr/lib/libjemalloc.so.2",
        "tcmalloc": "/usr/lib/libtcmalloc.so.4",
        "glibc": "2.36",
    },
    minor_faults_per_step=20_000.0,
    kernel_fraction=0.12,
    gc_fraction=0.05,
    zeroes_gradients=True,
    checkpoint_ways=("not_reentrant",),
    checkpointed_bytes=1 << 30,
    num_physical_cores=4,
    num_numa_nodes=2,
    has_simplejpeg=True,
    loop_edits=(WINDOWS,),
)
"""A CPU with every capability, and a script that uses none of them and leaves all checks on."""

GPU = Facts(
    torch_version="2.9.0",
    device="cuda",
    capabilities=("sm_90",),
    num_cores=16,
    num_threads=16,
    has_convolution=True,
    parameter_dtypes=("float32",),
    optimizers=CPU.optimizers,
    loaders=(LOADER,),
)
"""A current CUDA device, and a plain script."""

UNSEEN = Facts(torch_version="2.9.0", num_cores=8, libraries=CPU.libraries)
"""A CPU on which nothing was observed besides what the machine says of itself."""

BLOCKS = tuple(
    BlockFacts(
        name=f"GPT.h.{number}",
        kept_bytes=140 << 20,
        input_bytes=8 << 20,
        forward_s=0.040,
        operators=(
            BlockOperator(name="aten.addmm.default", seconds=0.025, result_bytes=72 << 20, num=4),
            BlockOperator(name="aten.gelu.default", seconds=0.009, result_bytes=32 << 20),
        ),
    )
    for number in range(12)
)
"""The blocks of a small language model."""

TEXT = Facts(
    torch_version="2.9.0",
    num_cores=8,
    parameter_dtypes=("float32",),
    has_convolution=False,
    has_batch_statistics=False,
    has_sequence_convolution=False,
    draws_in_calls=False,
    stepped_cells=(),
    plain_attention=("Attention",),
    kept_attention=(),
    written_gelus=("NewGELU tanh",),
    uses_compile=False,
    num_repeated_blocks=12,
    memory_fraction=0.9,
    blocks=BLOCKS,
    loaders=(TEXTS,),
    available_bytes=16 << 30,
    checkpoint_ways=("reentrant", "unpreserved"),
    checkpointed_bytes=1 << 30,
)
"""A language model on texts that are padded to one length."""

SHORT = dataclasses.replace(
    TEXT,
    num_parameters=124_000_000,
    checkpoint_ways=(),
    optimizers=(OptimizerFacts(name="AdamW", is_foreach=True, num_parameters=124_000_000),),
    has_torchao=True,
    held_bytes={"weights": 474 << 20, "gradients": 474 << 20, "optimizer": 948 << 20},
    peak_bytes={"weights": 474 << 20, "gradients": 474 << 20, "temporaries": 500 << 20},
    peak_phase="optimizer",
    backwards_per_update=1,
    reads_gradients=False,
    changes_rates_late=False,
)
"""The same short of memory, with all that is known of who holds it."""

WORLDS: tuple[Facts, ...] = (
    CPU,
    GPU,
    UNSEEN,
    TEXT,
    RANKS,
    DEVICES,
    SHORT,
    dataclasses.replace(SHORT, device="cuda", capabilities=("sm_90",), reads_gradients=True),
    dataclasses.replace(SHORT, optimizers=(OptimizerFacts(name="Adam"),) * 2),
    dataclasses.replace(DEVICES, num_nodes=1, has_infiniband=False, exchanges=()),
    dataclasses.replace(DEVICES, num_nodes=1),
    dataclasses.replace(DEVICES, has_infiniband=False),
    dataclasses.replace(TEXT, device="cuda", capabilities=("sm_90",), draws_in_calls=True),
    Facts(torch_version="2.9.0", libraries={"python": "/opt/other/bin/python"}),
    dataclasses.replace(TEXT, plain_attention=(), kept_attention=("dropout",), draws_in_calls=True),
    dataclasses.replace(TEXT, written_gelus=()),
    Facts(torch_version="2.4.0"),
    dataclasses.replace(CPU, has_simplejpeg=False),
    dataclasses.replace(CPU, has_pytorch_optimizer=True, has_schedulefree=True),
    dataclasses.replace(CPU, loaders=(DIGITS,)),
    dataclasses.replace(CPU, loaders=(NEIGHBORS,), has_numba=True, has_steptime=True),
    dataclasses.replace(CPU, loaders=(NEIGHBORS,), has_numba=False),
    dataclasses.replace(CPU, loaders=(PLAIN,)),
    dataclasses.replace(CPU, graph_widths=(1433, 256), has_steptime=True),
    dataclasses.replace(CPU, graph_widths=(256,), has_steptime=False),
    dataclasses.replace(CPU, graph_widths=(32,)),
    dataclasses.replace(CPU, graph_widths=()),
    dataclasses.replace(CPU, zero_fraction=0.987, draws_in_calls=True),
    dataclasses.replace(CPU, zero_fraction=0.9),
    *(
        dataclasses.replace(CPU, loaders=(dataclasses.replace(NEIGHBORS, neighbor_sampling=how),))
        for how in ("induced", "remote", "other")
    ),
    Facts(
        torch_version="2.4.0",
        capabilities=(),
        has_convolution=False,
        minor_faults_per_step=0.0,
        optimizers=(),
        loaders=(),
        gc_fraction=0.0,
        zeroes_gradients=False,
        checkpoint_ways=(),
        num_numa_nodes=1,
        loop_edits=(),
    ),
    Facts(torch_version="2.4.0", device="mps", parameter_dtypes=("float32",), loaders=(LOADER,)),
    Facts(
        torch_version="2.6.0",
        device="cuda",
        capabilities=("sm_70",),
        world_size=2,
        parameter_dtypes=("bfloat16", "float32"),
        has_convolution=True,
        uses_compile=True,
        num_recompiles=0,
        uses_cudnn_benchmark=True,
        uses_autocast=True,
    ),
    Facts(
        torch_version="2.9.0",
        uses_autocast=True,
        uses_scaler=True,
        uses_compile=True,
        num_recompiles=7,
        sets_threads=True,
        is_channels_last=True,
        matmul_precision="high",
        optimizers=(OptimizerFacts(name="SGD", is_fused=True),),
        loaders=(LoaderFacts(dataset="Stream", num_workers=4, is_iterable=True),),
    ),
)
"""Machines and scripts that each lever must have an answer for."""
