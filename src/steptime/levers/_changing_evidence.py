"""What levers gave that change the training, and some of graphs and memory: others' figures, ours.

A speedup of such a lever says nothing of quality; the remark does, where it was measured.
"""

from __future__ import annotations

from collections.abc import Mapping

from steptime.levers._evidence import gave
from steptime.levers.base import LeverEvidence

_CHANGES = "docs/how-to/change-the-training.md"
_RANKS = "docs/explanation/ranks-and-memory.md"
_EPOCH = "benchmarks/results/graph_maxk_epoch.json"
_TABLE = "benchmarks/results/optimizer_table.json"
_TRANSFORMS = "benchmarks/results/gradient_transforms.json"
_ZNORM = "docs/explanation/gradient-transforms.md"
_DENSE = "GCN, 3 layers of 256, RMAT graph of mean degree 204, an epoch on one thread"
_SPARSE = "GCN, 3 layers of 256, RMAT graph of mean degree 42, an epoch on one thread"
_RESNET20 = "ResNet-20, batches of 32, CPU time of a step on one thread"
_DIGITS = "Small residual network on 1,000 digits, 60 steps of Adam, 3 seeds"


def _not_measured(where: str, source: str) -> LeverEvidence:
    return gave("Our trainings", source, remark=f"Not measured by us yet: {where}.")


CHANGED: Mapping[str, tuple[LeverEvidence, ...]] = {
    "maxk": (
        gave(
            _DENSE, _EPOCH, 2.44, 2.38, 3.06, remark="With k = 32; a free product would give 5.95."
        ),
        gave(_DENSE, _EPOCH, 3.41, 3.20, 4.26, remark="With k = 16."),
        gave(
            _SPARSE, _EPOCH, 2.26, 1.95, 2.45, remark="With k = 32; a free product would give 3.19."
        ),
        gave(
            "GCN on Cora, 10 seeds",
            "docs/explanation/maxk.md",
            remark="Accuracy 82.2 ± 0.3 with k = 32, and 82.2 ± 0.1 with ReLU.",
        ),
    ),
    "fused_sampling": (
        gave(
            "GraphSAGE, 2 layers, batches of 1,024 at 10-25, beside DGL's two steps",
            "benchmarks/results/graph_sampling.json",
            1.18,
            1.15,
            1.21,
            remark="CPU time of one thread, with quartiles; a sampler that takes no time would "
            "give 1.34. PyG's own sampler was not there to be measured.",
        ),
    ),
    "progressive_length": (
        gave(
            "GPT-2 of 1.5 billion parameters, with batches 8 times as large",
            "https://arxiv.org/abs/2108.06084",
            3.7,
            remark="At most, in time to the same zero-shot results; 2.2 in tokens.",
        ),
        _not_measured("it takes long trainings of models of tokens", _CHANGES),
    ),
    "progressive_resolution": (_not_measured("it takes long trainings on images", _CHANGES),),
    "quantized_training": (_not_measured("it takes a GPU", _CHANGES),),
    "other_optimizer": (
        gave(
            "GPT-2 small to a given loss, by Muon",
            "https://github.com/KellerJordan/Muon",
            1.35,
            remark="In time to the loss, over the record before it.",
        ),
        gave(
            "Small model of characters, an update by Muon over one by AdamW",
            _TABLE,
            0.27,
            remark="At equal CPU time, loss 2.297 ± 0.008 and 2.360 ± 0.010 with AdamW.",
        ),
        gave(
            "Small network on digits, an update by Muon over one by AdamW",
            _TABLE,
            0.43,
            remark="At equal CPU time, accuracy 0.947 ± 0.015 and 0.958 ± 0.004 with AdamW.",
        ),
        gave(
            "Small model of characters, an update of schedule-free AdamW over one by AdamW",
            _TABLE,
            1.27,
            remark="At equal CPU time, loss 2.287 ± 0.020 and 2.360 ± 0.010 with AdamW.",
        ),
        gave(
            "Small network on digits, an update by Lion over one by AdamW",
            _TABLE,
            1.39,
            remark="Accuracy 0.936 ± 0.008 and 0.958 ± 0.004 with AdamW: it lost.",
        ),
        gave(
            "Small network on digits, an update by Adafactor over one by AdamW",
            _TABLE,
            0.60,
            remark="Accuracy 0.918 ± 0.017 and 0.958 ± 0.004 with AdamW: it lost.",
        ),
    ),
    "gradient_transform": (
        gave(_RESNET20, _TRANSFORMS, 0.995, remark="ZNorm."),
        gave(_RESNET20, _TRANSFORMS, 0.998, remark="Centralize."),
        gave(_DIGITS, _ZNORM, remark="Centralize: accuracy 0.875 ± 0.037, untreated 0.784."),
        gave(_DIGITS, _ZNORM, remark="ZNorm: accuracy 0.769 ± 0.013, untreated 0.784: it lost."),
    ),
    "larger_batch": (
        gave(
            "ResNet-50 on ImageNet, batches of 8,192 on 256 GPUs",
            "https://arxiv.org/abs/1706.02677",
            remark="As accurate as small batches, with the rate scaled and warmed up.",
        ),
        _not_measured("it takes a device that small batches leave idle", _CHANGES),
    ),
    "ddp_powersgd": (
        gave(
            "Convolutional networks and LSTMs on several GPUs",
            "https://arxiv.org/abs/1905.13727",
            remark="Faster by the clock at an accuracy on par with SGD.",
        ),
        _not_measured("it acts where ranks exchange gradients by NCCL", _CHANGES),
    ),
    "rate_factor": (_not_measured("it makes no step faster; it is one side of a sweep", _CHANGES),),
    "weight_averaging": (
        _not_measured("it makes no step faster; a training may end sooner", _CHANGES),
    ),
    "low_memory_states": (_not_measured("it frees memory, and a study does not try it", _RANKS),),
    "offload_activations": (_not_measured("it acts on a CUDA device", _RANKS),),
    "return_freed_memory": (
        gave(
            "GPT with a limit of memory, on a CPU",
            "benchmarks/results/fit_specimens.json",
            remark="It is in recipes that made trainings fit; its time alone was not measured.",
        ),
    ),
}
"""Evidence by the name of the lever."""
