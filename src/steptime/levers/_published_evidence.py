"""What others have published of our levers, with the address where it can be read.

The figures are the sources' own; where a source gives a time, the ratio is made of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from steptime.levers._evidence import gave
from steptime.levers.base import LeverEvidence

_BOOK = "https://github.com/stas00/ml-engineering/blob/master/training/performance/README.md"
_CHANNELS = "https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html"
_MIXED = (
    "https://pytorch.org/blog/"
    "accelerating-training-on-nvidia-gpus-with-pytorch-automatic-mixed-precision/"
)
_TORCHTITAN = "https://github.com/pytorch/torchtitan/pull/881"
_DYNAMIC_PADDING = (
    "https://ai.lefebvre-sarrut.eu/2020/05/20/divide-hugging-face-transformers-training-time-by-2"
    "-or-more-with-dynamic-padding-and-uniform-length-batching/"
)
_DECODERS = "https://github.com/ternaus/imread_benchmark"
_RECOMPUTATION = "https://arxiv.org/abs/2205.05198"
_NUMA = "https://docs.pytorch.org/docs/main/elastic/numa.html"
_AMPERE = "https://www.nvidia.com/en-us/data-center/a100/"

_ACCELERATE = "https://huggingface.co/docs/accelerate/concept_guides/gradient_synchronization"
_ACCUMULATED = "Accelerate's example on texts, T4, batches of 16, 4 passes an update"
_DYNAMIC = "https://github.com/pytorch/pytorch/issues/93468"
_RECORDED = "https://github.com/pytorch/pytorch/issues/188150"
_PADDED = "DPO with batches padded to their longest row, GB10"

_SMALL = "Language model of 1 billion parameters, 1 x 512 tokens, B200, whole step"
_LARGE = "Language model of 8 billion parameters, 1 x 8192 tokens, B200, whole step"
_LOADING = "Made-up loader, 5 ms of work an item, batches of 100 items of 1 MiB"
_COPIES = "Made-up loader with 5 workers, A100 on PCIe"
_CAMEMBERT = "CamemBERT on XNLI, up to 493 tokens, one GPU"


PUBLISHED: Mapping[str, tuple[LeverEvidence, ...]] = {
    "fused_attention": (
        gave(
            "GPT-2 on texts of 1,024 tokens, GPUs",
            "https://arxiv.org/abs/2205.14135",
            3.0,
            remark="Beside attention as libraries wrote it out in 2022.",
        ),
    ),
    "autocast": (gave("Several networks in fp16, 8 x V100", _MIXED, low=1.5, high=5.5),),
    "matmul_precision": (
        gave(
            "Products of matrices, A100",
            _AMPERE,
            8.0,
            remark="TF32 beside float32 by the datasheet; a training has other work, too.",
        ),
    ),
    "fused_optimizer": (
        gave(
            "Llama of 8 billion parameters, FSDP, eager, AdamW",
            _TORCHTITAN,
            1.022,
            remark="Fused beside foreach.",
        ),
        gave(
            "Llama of 8 billion parameters, six ways to share it among GPUs, AdamW",
            _TORCHTITAN,
            low=1.016,
            high=1.036,
            remark="Fused beside foreach.",
        ),
    ),
    "channels_last": (
        gave("ResNet-50 in fp16 with apex, one NVIDIA GPU", _CHANNELS, 1.22),
        gave("Twenty models of torchvision, Volta", _CHANNELS, low=1.08, high=1.35),
    ),
    "compile": (
        gave(_SMALL, _BOOK, 3.34, remark="Mode reduce-overhead."),
        gave(_SMALL, _BOOK, 3.14, remark="Mode default; the first step takes 22 s."),
        gave(_LARGE, _BOOK, 0.95, remark="Mode default; the first step takes 47 s."),
        gave(_LARGE, _BOOK, 0.95, remark="Mode reduce-overhead."),
        gave(
            _PADDED,
            _RECORDED,
            0.88,
            remark="Mode reduce-overhead: each length is recorded again, 25 s a step beside 22 s.",
        ),
    ),
    "no_compile": (
        gave(
            _PADDED,
            _RECORDED,
            1.14,
            remark="From what compiling in mode reduce-overhead cost there.",
        ),
    ),
    "dynamic_shapes": (
        gave(
            "OpenNMT on sentences of all lengths",
            _DYNAMIC,
            1.08,
            remark="Beside eager; the first 100 steps took 734 s instead of 212 s.",
        ),
        gave(
            "SpeechBrain's conformer on sequences of all lengths",
            "https://github.com/speechbrain/speechbrain/pull/2824",
            low=1.10,
            high=1.15,
            remark="Compiled with dynamic shapes, beside not compiled.",
        ),
    ),
    "fused_rnn": (
        gave(
            "Recurrent networks of several sizes, GPUs",
            "https://arxiv.org/abs/1604.01946",
            remark="The paper says an order of magnitude over a naive implementation, for cuDNN 5.",
        ),
    ),
    "ddp_no_sync": (
        gave(f"{_ACCUMULATED}, two machines", _ACCELERATE, 2.20),
        gave(f"{_ACCUMULATED}, two devices of one machine", _ACCELERATE, 1.22),
        gave(
            f"{_ACCUMULATED}, two machines",
            _ACCELERATE,
            0.94,
            remark="Around the backward alone, which does not keep it from exchanging.",
        ),
    ),
    "nccl_settings": (
        gave(
            "XLM-RoBERTa and Detectron2 on clusters without settings of their own",
            "https://lightning.ai/docs/pytorch/stable/advanced/ddp_optimizations.html",
            remark="30 % and 15 % by NCCL's threads and sockets, as the setting sockets has them.",
        ),
    ),
    "interpreter": (
        gave(
            "Python's own benchmarks, without torch, Python 3.11 beside 3.10",
            "https://docs.python.org/3/whatsnew/3.11.html",
            1.25,
            low=1.10,
            high=1.60,
            remark="Of a training it can shorten the time of Python alone.",
        ),
    ),
    "dataloader": (
        gave(_LOADING, _BOOK, 6.42, remark="3 workers; the time of loading alone."),
        gave(_LOADING, _BOOK, 6.16, remark="4 workers; the time of loading alone."),
        gave(_LOADING, _BOOK, 4.04, remark="2 workers; the time of loading alone."),
        gave(_LOADING, _BOOK, 1.38, remark="1 worker; the time of loading alone."),
        gave(
            _COPIES,
            _BOOK,
            1.24,
            remark="Pinned memory; with non-blocking copies too it is 1.41x.",
        ),
    ),
    "jpeg_decoder": (
        gave(
            "ImageNet's validation files decoded to RGB, one thread of five kinds of CPU",
            _DECODERS,
            1.27,
            low=1.18,
            high=1.28,
            remark="Decoding alone, from memory.",
        ),
    ),
    "trim_padding": (
        gave(
            _CAMEMBERT,
            _DYNAMIC_PADDING,
            4.56,
            remark="With batches of uniform length and mixed precision.",
        ),
    ),
    "length_grouping": (
        gave(
            _CAMEMBERT,
            _DYNAMIC_PADDING,
            4.56,
            remark="With batches cut to their longest row, and mixed precision.",
        ),
    ),
    "pinned_copies": (
        gave(_COPIES, _BOOK, 1.41, remark="Pinned and not waited for."),
        gave(_COPIES, _BOOK, 1.24, remark="Pinned alone."),
        gave(_COPIES, _BOOK, 0.98, remark="Not waited for, without pinning."),
    ),
    "activation_checkpointing": (
        gave(
            "Large language models",
            _BOOK,
            low=0.75,
            high=0.80,
            remark="It lets a batch be 2 to 4 times as large, which may give more.",
        ),
        gave(
            "Language models of 22 to 1,000 billion parameters, A100",
            _RECOMPUTATION,
            low=0.76,
            high=0.77,
            remark="Each layer again, beside attention alone with sequence parallelism.",
        ),
    ),
    "no_checkpointing": (
        gave(
            "Large language models",
            _BOOK,
            low=1.25,
            high=1.33,
            remark="From what checkpointing costs.",
        ),
    ),
    "process_binding": (
        gave(
            "Trainings on several GPUs, bound by torchrun",
            _NUMA,
            low=1.01,
            high=1.10,
            remark="Some gain much more, and some nothing.",
        ),
    ),
}
"""Published figures by the name of the lever."""
