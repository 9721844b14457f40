"""What our levers gave where we tried them, losses too; docs/explanation/tried.md says how.

Of the small models, a speedup from 0.90x to 1.10x means that no effect was seen, unless its range
is tight.
"""

from __future__ import annotations

from collections.abc import Mapping

from steptime.levers._evidence import gave
from steptime.levers.base import LeverEvidence

GPT = "GPT, 6 layers of 384, batches of 2 x 256"
RESNET = "ResNet-18 at half width, batches of 32 x 32 x 32"
MLP = "MLP, 100-512-512-512-2, batches of 512"
LSTM = "LSTM, 2 layers of 128, batches of 32 x 64"
_SLOW_STEPS = "benchmarks/busy_scripts/slow_steps.py, two cores beside a busy neighbor"
_ROWS = "benchmarks/busy_scripts/rows.py, two cores beside a busy neighbor"
_CLICKS = "benchmarks/busy_scripts/clicks.py, two cores beside a busy neighbor"
_PICTURES = "benchmarks/busy_scripts/pictures.py, two cores beside a busy neighbor"
_BUSY = "benchmarks/results/busy_studies.json"
_ARMS = "benchmarks/results/compare_arms.json"
_DATA = "benchmarks/results/data_levers.json"
_FOLDERS = "benchmarks/results/data_pictures.json"
_PREPARED = "benchmarks/results/data_prepared.json"
_JPEG = "benchmarks/results/data_jpeg_decoder.json"
_ZEROS = "benchmarks/results/zero_input.json"
_PADDING = "benchmarks/results/padding_levers.json"
_RANKS = "benchmarks/results/ranks_and_memory_levers.json"
_SAVERS = "benchmarks/results/memory_savers.json"
_UNLIKE = "GPT, 6 unlike blocks of 256, batches of 8 x 128, CPU time of one thread"
_WIDE_MLP = "MLP, 8 layers of 1024, batches of 8, AdamW, CPU time of one thread"
_NARROW_MLP = "MLP, 24 layers of 32, batches of 8, AdamW, CPU time of one thread"
_GPT256 = "GPT, 6 layers of 256, batches of 8 x 64, CPU time of one thread"
_TALL = "MLP, 4 layers of 64, batches of 262144, CPU time of one thread"
_TWO_RANKS = "MLP, 4 layers of 1024, two gloo ranks, CPU time of both"
_REGIONS = "benchmarks/results/compile_by_region.json"
_DEEP = "Transformer, 24 layers of 128, batches of 8 x 128, one thread"
_WIDE = "Transformer, 6 layers of 256, batches of 8 x 128, one thread"
_DROPS = f"{_WIDE}, with dropout"
_TRIED = "docs/explanation/tried.md"


def _small(
    training: str,
    speedup: float,
    low: float | None = None,
    high: float | None = None,
    *,
    remark: str = "",
) -> LeverEvidence:
    """Return a figure of a small model: CPU time of one thread, with the range of its rounds."""
    return gave(training, f"{_TRIED}#small-models-on-one-thread", speedup, low, high, remark=remark)


def _region(training: str, speedup: float, low: float, high: float, remark: str) -> LeverEvidence:
    """Return a figure of compiling whole or by blocks: CPU time of one thread, with quartiles."""
    return gave(training, _REGIONS, speedup, low, high, remark=remark)


def _threads(
    training: str, kind: str, speedup: float, low: float | None = None, high: float | None = None
) -> LeverEvidence:
    """Return a figure of one thread in place of two; wall time."""
    source, remark = f"{_TRIED}#threads-on-a-{kind}-machine", "One thread in place of two."
    return gave(training, source, speedup, low, high, remark=remark)


_FUSED = "benchmarks/results/fused_levers.json"
_WRITTEN = "language model with attention written out, 2 layers of 128, batches of"
_GELU = "small GPT with GELU written out, 2 layers of 128, batches of"
_LOOP = "language model with a loop over a cell of 128, batches of"

_BAG = "bag of words of Cora's shape (98.7 % zeros), first layer of"

MEASURED: Mapping[str, tuple[LeverEvidence, ...]] = {
    "fused_attention": (
        gave(f"{_WRITTEN} 4 x 512", _FUSED, 1.86, 1.74, 1.99),
        gave(f"{_WRITTEN} 8 x 256", _FUSED, 1.36, 1.32, 1.45),
        gave(f"{_WRITTEN} 16 x 128", _FUSED, 1.19, 1.16, 1.25),
        gave(f"{_WRITTEN} 8 x 256", _FUSED, 1.33, 1.29, 1.40, "By einsum."),
        gave(f"{_WRITTEN} 128 x 16", _FUSED, 0.96, 0.95, 1.00),
        gave(f"{_WRITTEN} 4 x 16", _FUSED, 0.91, 0.88, 0.92),
    ),
    "fused_gelu": (
        gave(f"{_GELU} 64 x 32", _FUSED, 1.20, 1.16, 1.22, "By tanh; 15 rounds."),
        gave(f"{_GELU} 8 x 256", _FUSED, 1.16, 1.13, 1.22, "By tanh; 15 rounds."),
        gave(f"{_GELU} 8 x 256", _FUSED, 1.19, 1.14, 1.23, "By tanh, factored out; 15 rounds."),
        gave(f"{_GELU} 8 x 256", _FUSED, 1.16, 1.03, 1.22, "By erf; 15 rounds."),
        gave(f"{_GELU} 4 x 16", _FUSED, 1.08, 1.03, 1.11, "By tanh; 150 rounds."),
        gave(f"{_GELU} 4 x 16", _FUSED, 1.04, 0.99, 1.09, "By erf; 150 rounds."),
        gave(
            f"{_GELU} 8 x 256",
            _FUSED,
            1.00,
            0.94,
            1.06,
            "Inner layers of 32 and a vocabulary of 2048: the activation is a small part.",
        ),
    ),
    "fused_rnn": (
        gave(f"{_LOOP} 4 x 64", _FUSED, 3.00, 2.88, 3.05, "An LSTMCell."),
        gave(f"{_LOOP} 32 x 64", _FUSED, 1.68, 1.65, 1.72, "An LSTMCell."),
        gave(f"{_LOOP} 256 x 8", _FUSED, 1.16, 1.14, 1.18, "An LSTMCell."),
        gave(f"{_LOOP} 32 x 64", _FUSED, 0.96, 0.95, 1.03, "States are used at once."),
        gave(f"{_LOOP} 4 x 64", _FUSED, 2.23, 2.10, 2.39, "An LSTM written out."),
        gave(f"{_LOOP} 32 x 64", _FUSED, 1.45, 1.18, 1.54, "An LSTM written out."),
        gave(f"{_LOOP} 4 x 64", _FUSED, 1.36, 1.23, 1.47, "A GRU written out."),
        gave(f"{_LOOP} 32 x 64", _FUSED, 1.15, 1.13, 1.16, "A GRU written out."),
        gave(f"{_LOOP} 4 x 64", _FUSED, 1.20, 1.19, 1.24, "A GRUCell."),
        gave(f"{_LOOP} 256 x 8", _FUSED, 0.99, 0.95, 1.01, "A GRUCell."),
    ),
    "sparse_input": (
        gave(
            "PyG, GCN on Cora, two cores",
            _ARMS,
            12.45,
            7.47,
            14.37,
            "By tune, with the allocator tcmalloc.",
        ),
        gave(f"{_BAG} 16", _ZEROS, 10.93, 10.21, 11.44, "With a dropout of it; one thread."),
        gave(f"{_BAG} 256", _ZEROS, 9.72, 9.52, 10.35, "With a dropout of it; one thread."),
        gave(f"{_BAG} 256", _ZEROS, 5.34, 5.21, 5.49, "Without a dropout; one thread."),
        gave(f"{_BAG} 16", _ZEROS, 1.79, 1.71, 1.95, "Without a dropout; one thread."),
        gave(
            f"{_BAG} 16",
            _ZEROS,
            3.92,
            3.74,
            3.99,
            "What was dropped is normalized, so it is filled in; one thread.",
        ),
    ),
    "autocast": (
        gave(_SLOW_STEPS, _BUSY, 2.33, 2.29, 2.38, "By tune; bf16."),
        gave("timm, ResNet-18 at 128 x 128, two cores", _ARMS, 1.48, 1.39, 1.60, "By hand; bf16."),
        _small(MLP, 2.20, 2.05, 2.37, remark="In bf16."),
        _small(RESNET, 1.96, 1.77, 2.03, remark="In bf16; 2.45x with channels_last."),
        _small(GPT, 1.72, 1.66, 1.86, remark="In bf16."),
        _small(LSTM, 1.63, 1.62, 1.69, remark="In bf16."),
    ),
    "matmul_precision": (
        gave(_CLICKS, _BUSY, 1.07, 1.06, 1.10, "By tune; medium."),
        _small(MLP, 2.08, 1.80, 2.20, remark="Medium."),
        _small(GPT, 1.44, 1.41, 1.49, remark="Medium."),
        _small(LSTM, 1.22, 1.14, 1.23, remark="Medium."),
        _small(RESNET, 0.96, remark="Medium: it rounds products, and no convolution."),
        _small(MLP, 0.99, remark="High does nothing on this CPU."),
        _small(LSTM, 0.97, remark="High does nothing on this CPU."),
    ),
    "fused_optimizer": (
        gave("PyTorch-GAN, gan.py, two cores", _ARMS, 1.32, 0.93, 1.41, "By hand; fused."),
        _small(GPT, 1.12, 1.10, 1.15, remark="Fused."),
        _small(MLP, 1.11, 1.09, 1.12, remark="Fused."),
        _small(LSTM, 1.03, remark="Fused."),
        _small(RESNET, 1.00, remark="Fused."),
        _small(MLP, 1.00, remark="Foreach."),
        _small(GPT, 0.98, remark="Foreach."),
        _small(LSTM, 0.96, remark="Foreach."),
    ),
    "channels_last": (
        _small(RESNET, 1.12, 1.11, 1.15),
        gave(
            "Network of the MNIST example in bf16, CPU time of one thread",
            f"{_TRIED}#channels-last-for-images-of-one-channel",
            1.14,
            0.99,
            1.21,
        ),
    ),
    "compile": (
        _small(RESNET, 1.13, 1.11, 1.18, remark="Mode default."),
        _small(MLP, 1.04, remark="Mode default."),
        _small(GPT, 1.01, remark="Mode default."),
        _small(LSTM, 0.99, remark="Mode default."),
        _region(_DEEP, 0.83, 0.82, 0.87, "By blocks; compiling took 21 s of CPU time."),
        _region(_DEEP, 0.89, 0.88, 0.92, "Whole; compiling took 52 s of CPU time."),
        _region(_WIDE, 0.86, 0.83, 0.87, "By blocks; compiling took 20 s of CPU time."),
        _region(_WIDE, 0.84, 0.84, 0.89, "Whole; compiling took 29 s of CPU time."),
        _region(_DROPS, 0.82, 0.80, 0.86, "By blocks; compiling took 32 s of CPU time."),
        _region(_DROPS, 0.85, 0.83, 0.88, "Whole; compiling took 39 s of CPU time."),
        _region(_DROPS, 0.81, 0.80, 0.84, "Mode max-autotune; 50 s of CPU time."),
    ),
    "num_threads": (
        _threads("MLP, two cores that other programs use too", "busy", 5.2, 3.2, 8.0),
        _threads("MLP, two cores", "quiet", 0.59),
        _threads("LSTM, two cores", "quiet", 0.57),
        _threads("ResNet, two cores", "quiet", 0.57),
        _threads("GPT, batches of 4 x 256, two cores", "quiet", 0.55),
    ),
    "wait_policy": (
        gave(
            "MLP, two threads on two cores that other programs use too",
            f"{_TRIED}#threads-on-a-busy-machine",
            4.6,
            2.9,
            6.8,
            "Wall time.",
        ),
    ),
    "allocator": (
        gave("GCN on Cora, two cores", _ARMS, 1.18, 1.07, 1.19, "By hand; glibc tuned."),
        gave("GCN on Cora, two cores", _ARMS, 1.17, 1.08, 1.20, "By hand; tcmalloc."),
        _small(RESNET, 1.16, remark="With tcmalloc; from 20,000 page faults a step to 79."),
        _small(RESNET, 1.12, remark="With glibc tuned."),
        _small(MLP, 1.06, remark="With tcmalloc."),
        _small(LSTM, 1.05, remark="With tcmalloc."),
        _small(LSTM, 1.01, remark="With glibc tuned."),
        _small(MLP, 0.96, remark="With glibc tuned."),
        _small(LSTM, 0.72, remark="With jemalloc as it comes: 21,000 page faults a step."),
    ),
    "dataloader": (
        gave(
            "4 ms of waiting an image, batches of 32, no core to spare",
            f"{_TRIED}#workers-without-a-core-to-spare",
            2.93,
            remark="4 workers that stay; 1.48x where they begin again each 6 steps.",
        ),
        gave(
            "2.75 ms of decoding an image, batches of 32, no core to spare",
            f"{_TRIED}#workers-without-a-core-to-spare",
            0.72,
            remark="4 workers that begin again each 6 steps; 1.11x where they stay.",
        ),
    ),
    "whole_batch_fetch": (
        gave(_ROWS, _BUSY, 2.59, 2.51, 2.66, "By tune."),
        gave("MNIST, reading alone, batches of 64", _DATA, 31.3, 25.8, 35.1),
        gave("CIFAR's size, reading alone, batches of 64", _DATA, 8.7, 8.3, 8.7),
        gave("Windows of a series, reading alone, batches of 64", _DATA, 1.78, 1.68, 1.98),
    ),
    "batched_transform": (
        gave("MNIST, reading alone, batches of 64", _DATA, 2.15, 2.07, 2.27),
        gave("CIFAR's size with random crops, reading alone", _DATA, 1.47, 1.37, 1.58),
    ),
    "preloaded_samples": (
        gave("minGPT's digits, four workers on two cores", _ARMS, 1.22, 1.13, 1.27, "By tune."),
        gave(
            "MNIST, reading alone, beside whole batches",
            f"{_TRIED}#samples-made-once-beside-whole-batches",
            0.98,
            0.93,
            1.05,
        ),
    ),
    "dataset_cache": (
        gave(_PICTURES, _BUSY, 5.68, 5.35, 6.04, "By tune; with matmul_precision medium."),
    ),
    "decoded_cache": (
        gave("Photos by ImageFolder, cropped at random, reading alone", _DATA, 1.64, 1.59, 1.76),
        gave(
            "The same as PNG files, reading alone", _FOLDERS, 3.26, 2.76, 3.95, "Beside neighbors."
        ),
    ),
    "scaled_decoding": (
        gave(
            "4000 x 3000, RandomResizedCrop(224), reading alone",
            _FOLDERS,
            3.33,
            3.12,
            3.43,
            "At one half; photos enlarged to that size.",
        ),
        gave(
            "4000 x 3000, Resize(256), reading alone",
            _FOLDERS,
            5.82,
            5.54,
            6.11,
            "At a quarter; photos enlarged to that size.",
        ),
        gave("Photos of 500 x 375, Resize(64), reading alone", _FOLDERS, 1.29, 1.27, 1.33),
    ),
    "jpeg_decoder": (
        gave("Photos by ImageFolder, cropped at random, reading alone", _DATA, 1.01, 1.00, 1.04),
        gave("JPEG files of 32 x 32 opened and converted, one thread", _JPEG, 1.30, 1.29, 1.32),
        gave("JPEG photos of 500 x 375 opened and converted, one thread", _JPEG, 1.05, 1.03, 1.10),
    ),
    "prepared_data": (
        gave(
            "JPEG files of 256 x 256 opened and converted, one thread",
            _PREPARED,
            4.47,
            3.97,
            5.61,
            "The copy took 2.6 times the bytes of the files.",
        ),
    ),
    "trim_padding": (
        gave("Layers on each position, one thread", _PADDING, 3.84, 3.26, 4.12),
        gave("Attention, one thread", _PADDING, 8.94, 8.75, 9.50),
    ),
    "length_grouping": (
        gave("Layers on each position, one thread", _PADDING, 5.06, 4.06, 6.31, "Trimmed too."),
        gave("Attention, one thread", _PADDING, 10.56, 9.54, 10.95, "Trimmed too."),
    ),
    "activation_checkpointing": (
        gave(_GPT256, _RANKS, 0.84, 0.82, 0.85, remark="Every second block; 0.58 is kept."),
        gave(_GPT256, _RANKS, 0.74, 0.70, 0.78, remark="All blocks; 0.16 is kept."),
        _small(GPT, 0.82, 0.81, 0.84, remark="Each layer."),
        _small(RESNET, 0.76, 0.75, 0.78, remark="Each block."),
    ),
    "selective_checkpointing": (
        gave(_UNLIKE, _SAVERS, 0.92, 0.92, 0.95, "The peak of a step is 0.75 of what it was."),
        gave(_UNLIKE, _SAVERS, 0.87, 0.85, 0.88, "0.52 of it; every second block, whole: 0.62."),
        gave(_UNLIKE, _SAVERS, 0.78, 0.75, 0.79, "0.31 of it; all blocks, whole, at 0.71x: 0.31."),
    ),
    "optimizer_in_backward": (
        gave(_WIDE_MLP, _SAVERS, 1.01, 0.98, 1.14, "The peak of a step is 0.31 of what it was."),
        gave(_NARROW_MLP, _SAVERS, 0.62, 0.57, 0.68, "0.54 of it; 50 small weights."),
    ),
    "no_foreach": (
        gave(_WIDE_MLP, _SAVERS, 1.28, 1.23, 1.38, "The peak of a step is 0.62 of what it was."),
        gave(_NARROW_MLP, _SAVERS, 0.85, 0.82, 0.85, "0.54 of it; 50 small weights."),
    ),
    "no_checkpointing": (
        _small(RESNET, 1.32, 1.28, 1.33, remark="Each block was computed again before."),
        _small(GPT, 1.22, 1.19, 1.23, remark="Each layer was computed again before."),
    ),
    "gc_control": (
        _small(GPT, 1.01, remark="By `gc.disable()`."),
        _small(MLP, 1.00, remark="By `gc.disable()`."),
        _small(LSTM, 0.99, remark="By `gc.disable()`."),
    ),
    "set_to_none": (
        _small(GPT, 1.03, remark="Zeros were filled in before."),
        _small(MLP, 1.00, remark="Zeros were filled in before."),
        _small(LSTM, 0.98, remark="Zeros were filled in before."),
    ),
    "no_pin_memory": (
        gave(
            "Images, batches of 32, workers, no device",
            f"{_TRIED}#workers-without-a-core-to-spare",
            0.89,
            0.67,
            1.23,
            "Nothing was seen in that noise.",
        ),
    ),
    "micro_batches": (
        gave(_TALL, _RANKS, 1.21, 1.18, 1.28, remark="In 8 parts."),
        gave(_TALL, _RANKS, 1.18, 1.12, 1.22, remark="In 8 parts, computed again; 0.12 is kept."),
        gave(_TALL, _RANKS, 0.98, 0.98, 1.04, remark="In 2 parts."),
        gave(
            "MLP, 4 layers of 64, batches of 32, CPU time of one thread",
            _RANKS,
            0.37,
            0.37,
            0.37,
            remark="In 4 parts.",
        ),
    ),
    **{
        name: (
            gave(
                "Our trainings",
                f"{_TRIED}#small-trainings-that-a-lever-should-help-and-others",
                remark=f"Not measured by us yet: it acts {where}.",
            ),
        )
        for name, where in (
            ("cudnn_benchmark", "on a CUDA device"),
            ("deferred_reads", "on a CUDA device"),
            ("nccl_settings", "where ranks exchange gradients by NCCL"),
            ("pinned_copies", "on a CUDA device"),
            ("prefetch_to_device", "on a CUDA device"),
            ("process_binding", "on machines with several NUMA nodes"),
        )
    },
    "ddp_no_sync": (
        gave(_TWO_RANKS, _RANKS, 1.81, 1.70, 2.01, remark="One exchange of four; wall 1.36."),
    ),
    "ddp_bf16": (
        gave(_TWO_RANKS, _RANKS, 0.74, 0.69, 0.82, remark="By gloo on one machine; wall 0.61."),
    ),
}
"""Our figures by the name of the lever."""
