"""Datasheet peaks of accelerators, each with its source; they are dense peaks, never sparse ones.

In: a device's name as torch gives it. Out: its row, or None: an unknown device has no peak, and
hence no utilization. Only whole names match, since parts that differ by a suffix differ in speed,
and the name of a slice of a device begins with the device's. Ceilings are measured elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8")

_BOOK = "Machine Learning Engineering (S. Bekman), accelerator chapter"
_LIGHTNING = "PyTorch Lightning, throughput table"
_TITAN = "torchtitan, table of peaks"
_LLM = "llm-analysis"
_COMPOSER = "MosaicML Composer, table of peaks a chip"
_BOOK_AND_LLM = f"{_BOOK}; bandwidth from llm-analysis"
_BOOK_AND_SCALING = f"{_BOOK}; fp8 and bandwidth from How To Scale Your Model"
_LIGHTNING_AND_LLM = f"{_LIGHTNING}; bandwidth from llm-analysis"
_LIGHTNING_AND_TITAN = f"{_LIGHTNING}; bf16 from torchtitan, bandwidth from llm-analysis"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """The datasheet figures of one part.

    Attributes:
        name: name of the part.
        device_names: what torch calls it.
        peak_flops_per_s: dense peak by the type of the numbers that are multiplied [FLOP/s].
        bandwidth_bytes_per_s: bandwidth of its memory; None where the source does not say.
        source: where the figures come from.
    """

    name: str
    device_names: tuple[str, ...]
    peak_flops_per_s: Mapping[str, float]
    bandwidth_bytes_per_s: float | None
    source: str


def find_accelerator(name: str | None) -> Accelerator | None:
    """Return the row of a device, by what torch calls it or by the name of the part."""
    for one in ACCELERATORS:
        if name is not None and name in (one.name, *one.device_names):
            return one
    return None


def _row(
    name: str,
    source: str,
    gigabytes_per_s: float | None,
    teraflops: tuple[float | None, ...],
    *device_names: str,
) -> Accelerator:
    peaks = zip(DTYPES, teraflops, strict=True)
    return Accelerator(
        name=name,
        device_names=device_names,
        peak_flops_per_s={dtype: peak * 1e12 for dtype, peak in peaks if peak is not None},
        bandwidth_bytes_per_s=None if gigabytes_per_s is None else gigabytes_per_s * 1e9,
        source=source,
    )


# The peaks are in the order of `DTYPES` [TFLOPS], after the bandwidth [GB/s]. fp32 is the rate
# without matrix units, unless the vendor has matrix units for fp32. There is no figure where the
# tables disagree, or where nobody has read the datasheet a second time.
# fmt: off
ACCELERATORS = (
    _row("H100 SXM 80GB", _BOOK, 3350, (67, 494.5, 989, 989, 1979), "NVIDIA H100 80GB HBM3"),
    _row("H100 PCIe 80GB", _BOOK, 2000, (51, 378, 756, 756, 1513), "NVIDIA H100 PCIe"),
    _row("H100 NVL", _LIGHTNING, None, (60, 417.5, 835.5, 835.5, None), "NVIDIA H100 NVL"),
    _row("H200 SXM 141GB", _BOOK, 4800, (67, 494.5, 989, 989, 1979), "NVIDIA H200"),
    _row("H200 NVL", _LIGHTNING, None, (60, 420, 840, 840, None), "NVIDIA H200 NVL"),
    _row("GH200", _BOOK, 4800, (67, 494.5, 989, 989, 1979),
        "NVIDIA GH200 480GB", "NVIDIA GH200 120GB"),
    _row("H20", _TITAN, None, (None, None, None, 148, None), "NVIDIA H20"),
    _row("B200", _BOOK, 8000, (80, 1125, 2250, 2250, 4500), "NVIDIA B200"),
    _row("GB200", _BOOK, 8000, (80, 1250, 2500, 2500, 5000), "NVIDIA GB200"),
    _row("B300", _BOOK, 8000, (80, 1125, 2250, 2250, 4500), "NVIDIA B300 SXM6 AC"),
    _row("GB300", _BOOK, None, (80, 1250, 2500, 2500, 5000), "NVIDIA GB300"),
    _row("A100 SXM 80GB", _BOOK, 2039, (19.5, 156, 312, 312, None),
        "NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
    _row("A100 SXM 40GB", _BOOK_AND_LLM, 1555, (19.5, 156, 312, 312, None),
        "NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
    _row("A100 PCIe 80GB", _BOOK, 1940, (19.5, 156, 312, 312, None), "NVIDIA A100 80GB PCIe"),
    _row("L40S", _BOOK, 860, (91.6, 183, 362, 362, 733), "NVIDIA L40S"),
    _row("L40", _LIGHTNING, None, (90.5, 90.5, 181, 181, None), "NVIDIA L40"),
    _row("L4", _LIGHTNING, None, (30.3, 60, 121, 121, None), "NVIDIA L4"),
    _row("A10", _LIGHTNING, 600, (31.2, 62.5, 125, 125, None), "NVIDIA A10"),
    _row("A10G", _LIGHTNING, 600, (35, None, None, None, None), "NVIDIA A10G"),
    _row("A40", _LIGHTNING, None, (37.4, 74.8, 149.7, 149.7, None), "NVIDIA A40"),
    _row("RTX A6000", _LIGHTNING_AND_TITAN, 768, (38.7, 77.4, None, 154.85, None),
        "NVIDIA RTX A6000"),
    _row("RTX 4090", _LIGHTNING, None, (82.6, None, None, None, None), "NVIDIA GeForce RTX 4090"),
    _row("RTX 4080", _LIGHTNING, None, (48.7, None, None, None, None), "NVIDIA GeForce RTX 4080"),
    _row("RTX 3090", _LIGHTNING, None, (35.6, None, None, None, None), "NVIDIA GeForce RTX 3090"),
    _row("RTX 3080", _LIGHTNING, None, (29.8, None, None, None, None), "NVIDIA GeForce RTX 3080"),
    _row("T4", _LIGHTNING, None, (8.1, None, 65, None, None), "Tesla T4"),
    _row("V100 SXM2", _LIGHTNING_AND_LLM, 900, (15.7, None, 125, None, None),
        "Tesla V100-SXM2-16GB", "Tesla V100-SXM2-32GB"),
    _row("V100 PCIe", _LIGHTNING, None, (14, None, 112, None, None),
        "Tesla V100-PCIE-16GB", "Tesla V100-PCIE-32GB"),
    _row("V100S PCIe", _LIGHTNING, None, (16.4, None, 130, None, None), "Tesla V100S-PCIE-32GB"),
    _row("MI355X", _BOOK, 8000, (157.3, None, 2500, 2500, 5000), "AMD Instinct MI355X"),
    _row("MI350X", _BOOK, 8000, (144.2, None, None, None, None)),
    _row("MI325X", _BOOK, 6000, (163.4, 653.7, 1300, 1300, 2610), "AMD Instinct MI325X"),
    _row("MI300X", _BOOK, 5300, (163.4, 653.7, 1307, 1307, 2610), "AMD Instinct MI300X"),
    _row("MI210", _LLM, 1638, (None, None, 181, None, None)),
    _row("MI100", _LLM, 1228.8, (None, None, 184.6, None, None)),
    _row("Gaudi 3", _BOOK, 3700, (229, 459, 459, 1677, 1677)),
    _row("Gaudi 2", _BOOK, 2460, (None, None, None, 432, 865)),
    _row("Data Center GPU Max 1550", _TITAN, None, (None, None, None, 340.8, None)),
    _row("Trainium 2", _BOOK, 2900, (181, 667, 667, 667, 1299)),
    _row("Trainium 1", _COMPOSER, None, (47.5, None, None, 190, None)),
    _row("TPU v7x", _BOOK, 7370, (None, None, None, 2307, 4614)),
    _row("TPU v6e", _BOOK_AND_SCALING, 1600, (None, None, None, 918, 918)),
    _row("TPU v5p", _BOOK, 2760, (None, None, None, 459, None)),
    _row("TPU v5e", _BOOK, 820, (None, None, None, 197, None)),
    _row("TPU v4", _BOOK, 1200, (None, None, None, 275, None)),
    _row("TPU v3", _LLM, 900, (None, None, None, 140, None)),
)
# fmt: on
