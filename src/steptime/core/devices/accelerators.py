"""The table of accelerators: datasheet peaks, each with its source; dense peaks, never sparse ones.

In: nothing. Out: `ACCELERATORS`. There is no figure where the sources disagree, or where no source
was read. `hardware.py` finds the row of a device.
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
_BOOK_AND_GRACE = f"{_BOOK}; bandwidth from NVIDIA's GH200 datasheet"
_LIGHTNING_AND_LLM = f"{_LIGHTNING}; bandwidth from llm-analysis"
_LIGHTNING_AND_SHEET = f"{_LIGHTNING}; bandwidth from NVIDIA's datasheet"
_LIGHTNING_AND_TITAN = f"{_LIGHTNING}; bf16 from torchtitan, bandwidth from llm-analysis"
_SHEET = "NVIDIA's datasheet of the part"
_A800 = "NVIDIA's A800 datasheet: the A100's arithmetic, with fewer links"
_PASCAL = "NVIDIA's Pascal datasheets; no fp16, whose rate is for sums in fp16 only"
_TURING = "NVIDIA Turing GPU architecture whitepaper, reference clocks"
_GA102 = "NVIDIA Ampere GA102 GPU architecture whitepaper, sums in fp32"
_ADA = "NVIDIA Ada GPU architecture whitepaper, sums in fp32"
_ADA_RATE = "NVIDIA's specification: cores and boost clock, at the Ada whitepaper's rates a core"
_AMPERE_RATE = "NVIDIA's specification: cores and boost clock, at GA102's rates a core"
_BLACKWELL = "NVIDIA RTX Blackwell GPU architecture whitepaper, sums in fp32"
_PRO = "NVIDIA RTX Blackwell PRO GPU architecture whitepaper 1.1, table 4"
_CDNA2 = "AMD's MI200 datasheet, of one of the two dies, each of which is a device"
_AMD = "AMD's datasheet of the part, matrix rates"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """The datasheet figures of one part.

    Attributes:
        name: name of the part.
        device_names: what the driver, and hence torch, calls it.
        peak_flops_per_s: dense peak by the type of the numbers that are multiplied [FLOP/s].
        bandwidth_bytes_per_s: bandwidth of its memory; None where the source does not say.
        source: where the figures come from.
        memory_gib: size of its memory [GiB], where another part has the same device name.
        num_multiprocessors: its multiprocessors (compute units), where slices of it are sold as
            devices, or another part has the same device name.
    """

    name: str
    device_names: tuple[str, ...]
    peak_flops_per_s: Mapping[str, float]
    bandwidth_bytes_per_s: float | None
    source: str
    memory_gib: float | None = None
    num_multiprocessors: int | None = None


def _row(
    name: str,
    source: str,
    gigabytes_per_s: float | None,
    teraflops: tuple[float | None, ...],
    *device_names: str,
    gib: float | None = None,
    units: int | None = None,
) -> Accelerator:
    peaks = zip(DTYPES, teraflops, strict=True)
    return Accelerator(
        name=name,
        device_names=device_names,
        peak_flops_per_s={dtype: peak * 1e12 for dtype, peak in peaks if peak is not None},
        bandwidth_bytes_per_s=None if gigabytes_per_s is None else gigabytes_per_s * 1e9,
        source=source,
        memory_gib=gib,
        num_multiprocessors=units,
    )


# The peaks are in the order of `DTYPES` [TFLOPS], after the bandwidth [GB/s]. fp32 is the rate
# without matrix units, unless the vendor has matrix units for fp32. 16-bit and fp8 peaks are those
# of sums in fp32, as training needs them: on GeForce parts half of what sums in fp16 would allow.
# fmt: off
ACCELERATORS = (
    # -- NVIDIA, data center
    _row("H100 SXM 80GB", _BOOK, 3350, (67, 494.5, 989, 989, 1979), "NVIDIA H100 80GB HBM3",
        units=132),
    _row("H100 PCIe 80GB", _BOOK, 2000, (51, 378, 756, 756, 1513), "NVIDIA H100 PCIe", units=114),
    _row("H100 NVL", _LIGHTNING_AND_SHEET, 3900, (60, 417.5, 835.5, 835.5, None),
        "NVIDIA H100 NVL", units=132),
    _row("H200 SXM 141GB", _BOOK, 4800, (67, 494.5, 989, 989, 1979), "NVIDIA H200", units=132),
    _row("H200 NVL", _LIGHTNING_AND_SHEET, 4800, (60, 420, 840, 840, None), "NVIDIA H200 NVL",
        units=132),
    _row("GH200 96GB", _BOOK_AND_GRACE, 4000, (67, 494.5, 989, 989, 1979),
        "NVIDIA GH200 480GB", "NVIDIA GH200 120GB", gib=96, units=132),
    _row("GH200 144GB", _BOOK_AND_GRACE, 4900, (67, 494.5, 989, 989, 1979),
        "NVIDIA GH200 480GB", "NVIDIA GH200 144G HBM3e", gib=144, units=132),
    _row("H20", _TITAN, None, (None, None, None, 148, None), "NVIDIA H20"),
    _row("B200", _BOOK, 8000, (80, 1125, 2250, 2250, 4500), "NVIDIA B200", units=148),
    _row("GB200", _BOOK, 8000, (80, 1250, 2500, 2500, 5000), "NVIDIA GB200"),
    _row("B300", _BOOK, 8000, (80, 1125, 2250, 2250, 4500), "NVIDIA B300 SXM6 AC"),
    _row("GB300", _BOOK, None, (80, 1250, 2500, 2500, 5000), "NVIDIA GB300"),
    _row("A100 SXM 80GB", _BOOK, 2039, (19.5, 156, 312, 312, None),
        "NVIDIA A100-SXM4-80GB", units=108),
    _row("A100 SXM 40GB", _BOOK_AND_LLM, 1555, (19.5, 156, 312, 312, None),
        "NVIDIA A100-SXM4-40GB", units=108),
    _row("A100 PCIe 80GB", _BOOK, 1940, (19.5, 156, 312, 312, None), "NVIDIA A100 80GB PCIe",
        "NVIDIA A100-PCIE-80GB", units=108),
    _row("A100 PCIe 40GB", _SHEET, 1555, (19.5, 156, 312, 312, None), "NVIDIA A100-PCIE-40GB",
        units=108),
    _row("A800 SXM 80GB", _A800, 2039, (19.5, 156, 312, 312, None), "NVIDIA A800-SXM4-80GB",
        units=108),
    _row("A800 PCIe 80GB", _A800, 1940, (19.5, 156, 312, 312, None), "NVIDIA A800 80GB PCIe",
        units=108),
    _row("A30", _SHEET, 933, (10.3, 82, 165, 165, None), "NVIDIA A30", units=56),
    _row("L40S", _BOOK, 860, (91.6, 183, 362, 362, 733), "NVIDIA L40S"),
    _row("L40", _LIGHTNING_AND_SHEET, 864, (90.5, 90.5, 181, 181, None), "NVIDIA L40"),
    _row("L4", _LIGHTNING_AND_SHEET, 300, (30.3, 60, 121, 121, None), "NVIDIA L4"),
    _row("A10", _LIGHTNING, 600, (31.2, 62.5, 125, 125, None), "NVIDIA A10"),
    _row("A10G", "NVIDIA's A10G datasheet for AWS", 600, (35, 35, 70, 70, None), "NVIDIA A10G"),
    _row("A40", _LIGHTNING_AND_SHEET, 696, (37.4, 74.8, 149.7, 149.7, None), "NVIDIA A40"),
    _row("A16", f"{_SHEET}, one of its four GPUs", 200, (4.5, 9, 17.9, 17.9, None), "NVIDIA A16"),
    _row("A2", _SHEET, 200, (4.5, 9, 18, 18, None), "NVIDIA A2"),
    _row("T4", _LIGHTNING, None, (8.1, None, 65, None, None), "Tesla T4"),
    _row("V100 SXM2", _LIGHTNING_AND_LLM, 900, (15.7, None, 125, None, None),
        "Tesla V100-SXM2-16GB", "Tesla V100-SXM2-32GB"),
    _row("V100 SXM3", f"{_SHEET}; the V100 SXM2's peaks", None, (15.7, None, 125, None, None),
        "Tesla V100-SXM3-32GB"),
    _row("V100 PCIe", _LIGHTNING_AND_SHEET, 900, (14, None, 112, None, None),
        "Tesla V100-PCIE-16GB", "Tesla V100-PCIE-32GB"),
    _row("V100S PCIe", _LIGHTNING_AND_SHEET, 1134, (16.4, None, 130, None, None),
        "Tesla V100S-PCIE-32GB"),
    _row("P100 SXM2", _PASCAL, 732, (10.6, None, None, None, None), "Tesla P100-SXM2-16GB"),
    _row("P100 PCIe 16GB", _PASCAL, 732, (9.3, None, None, None, None), "Tesla P100-PCIE-16GB"),
    _row("P40", _PASCAL, 346, (12, None, None, None, None), "Tesla P40"),
    _row("P4", _PASCAL, 192, (5.5, None, None, None, None), "Tesla P4"),
    # -- NVIDIA, workstations
    _row("RTX PRO 6000 Blackwell Workstation", _PRO, 1792, (126, 251.9, 503.8, 503.8, None),
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"),
    _row("RTX PRO 6000 Blackwell Max-Q", _PRO, 1792, (109.7, 219.5, 438.9, 438.9, None),
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"),
    _row("RTX PRO 6000 Blackwell Server", f"{_SHEET}; it has no dense 16-bit peak", 1597,
        (120, None, None, None, None), "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
    _row("RTX 6000 Ada", _ADA, 960, (91.1, 182.1, 364.2, 364.2, 728.5),
        "NVIDIA RTX 6000 Ada Generation"),
    _row("RTX 5000 Ada", _SHEET, 576, (65.3, 130.6, 261.1, 261.1, 522.2),
        "NVIDIA RTX 5000 Ada Generation"),
    _row("RTX 4000 Ada", _SHEET, 360, (26.7, 53.4, 106.9, 106.9, 213.8),
        "NVIDIA RTX 4000 Ada Generation"),
    _row("RTX A6000", _LIGHTNING_AND_TITAN, 768, (38.7, 77.4, 154.85, 154.85, None),
        "NVIDIA RTX A6000"),
    _row("RTX A5000", _GA102, 768, (27.8, 55.6, 111.1, 111.1, None), "NVIDIA RTX A5000"),
    _row("RTX A4500", _SHEET, 640, (23.7, 47.3, 94.6, 94.6, None), "NVIDIA RTX A4500"),
    _row("RTX A4000", _SHEET, 448, (19.2, 38.3, 76.7, 76.7, None), "NVIDIA RTX A4000"),
    _row("Quadro RTX 8000", _TURING, 672, (16.3, None, 130.5, None, None), "Quadro RTX 8000"),
    _row("Quadro RTX 6000", _TURING, 672, (16.3, None, 130.5, None, None), "Quadro RTX 6000"),
    _row("Quadro RTX 5000", _TURING, 448, (11.2, None, 89.2, None, None), "Quadro RTX 5000"),
    # -- NVIDIA, GeForce and TITAN
    _row("RTX 5090", _BLACKWELL, 1792, (104.8, 104.8, 209.5, 209.5, 419),
        "NVIDIA GeForce RTX 5090"),
    _row("RTX 5080", _BLACKWELL, 960, (56.3, 56.3, 112.6, 112.6, 225.1),
        "NVIDIA GeForce RTX 5080"),
    _row("RTX 5070 Ti", _BLACKWELL, 896, (43.9, 43.9, 87.9, 87.9, 175.8),
        "NVIDIA GeForce RTX 5070 Ti"),
    _row("RTX 5070", _BLACKWELL, 672, (30.9, 30.9, 61.7, 61.7, 123.5), "NVIDIA GeForce RTX 5070"),
    _row("RTX 4090", _ADA, 1008, (82.6, 82.6, 165.2, 165.2, 330.3), "NVIDIA GeForce RTX 4090"),
    _row("RTX 4090 D", _ADA_RATE, 1008, (73.5, 73.5, 147.1, 147.1, 294.2),
        "NVIDIA GeForce RTX 4090 D"),
    _row("RTX 4080 SUPER", _ADA_RATE, 736, (52.2, 52.2, 104.4, 104.4, 208.9),
        "NVIDIA GeForce RTX 4080 SUPER"),
    _row("RTX 4080", _ADA, 716.8, (48.7, 48.7, 97.5, 97.5, 194.9), "NVIDIA GeForce RTX 4080"),
    _row("RTX 4070 Ti SUPER", _ADA_RATE, 672, (44.1, 44.1, 88.2, 88.2, 176.4),
        "NVIDIA GeForce RTX 4070 Ti SUPER"),
    _row("RTX 4070 Ti", _ADA, 504, (40.1, 40.1, 80.2, 80.2, 160.4), "NVIDIA GeForce RTX 4070 Ti"),
    _row("RTX 4070", _ADA_RATE, None, (29.1, 29.1, 58.3, 58.3, 116.6), "NVIDIA GeForce RTX 4070"),
    _row("RTX 4060 Ti", _ADA_RATE, 288, (22.1, 22.1, 44.1, 44.1, 88.2),
        "NVIDIA GeForce RTX 4060 Ti"),
    _row("RTX 3090 Ti", _ADA, 1008, (40, 40, 80, 80, None), "NVIDIA GeForce RTX 3090 Ti"),
    _row("RTX 3090", _GA102, 936, (35.6, 35.6, 71.2, 71.2, None), "NVIDIA GeForce RTX 3090"),
    _row("RTX 3080 Ti", _AMPERE_RATE, 912, (34.1, 34.1, 68.2, 68.2, None),
        "NVIDIA GeForce RTX 3080 Ti"),
    _row("RTX 3080 10GB", _GA102, 760, (29.8, 29.8, 59.5, 59.5, None), "NVIDIA GeForce RTX 3080",
        gib=10, units=68),
    _row("RTX 3080 12GB", _AMPERE_RATE, 912, (30.6, 30.6, 61.3, 61.3, None),
        "NVIDIA GeForce RTX 3080", gib=12, units=70),
    _row("RTX 3070", _GA102, 448, (20.3, 20.3, 40.6, 40.6, None), "NVIDIA GeForce RTX 3070"),
    _row("RTX 3060 12GB", _AMPERE_RATE, 360, (12.7, 12.7, 25.5, 25.5, None),
        "NVIDIA GeForce RTX 3060", gib=12),
    _row("RTX 3060 8GB", _AMPERE_RATE, 240, (12.7, 12.7, 25.5, 25.5, None),
        "NVIDIA GeForce RTX 3060", gib=8),
    _row("RTX 2080 Ti", _TURING, 616, (13.4, None, 53.8, None, None),
        "NVIDIA GeForce RTX 2080 Ti"),
    _row("RTX 2080", _TURING, 448, (10.1, None, 40.3, None, None), "NVIDIA GeForce RTX 2080"),
    _row("RTX 2070", _TURING, 448, (7.5, None, 29.9, None, None), "NVIDIA GeForce RTX 2070"),
    _row("TITAN RTX", _TURING, 672, (16.3, None, 130.5, None, None), "NVIDIA TITAN RTX"),
    _row("GTX 1080 Ti", _PASCAL, 484, (11.3, None, None, None, None),
        "NVIDIA GeForce GTX 1080 Ti"),
    # -- AMD
    _row("MI355X", _BOOK, 8000, (157.3, None, 2500, 2500, 5000), "AMD Instinct MI355X"),
    _row("MI350X", _BOOK, 8000, (144.2, None, None, None, None), "AMD Instinct MI350X"),
    _row("MI325X", _BOOK, 6000, (163.4, 653.7, 1300, 1300, 2610), "AMD Instinct MI325X"),
    _row("MI300X", _BOOK, 5300, (163.4, 653.7, 1307, 1307, 2610), "AMD Instinct MI300X",
        "AMD Instinct MI300X OAM"),
    _row("MI300A", _AMD, 5300, (122.6, 490.3, 980.6, 980.6, 1961.2), "AMD Instinct MI300A"),
    _row("MI250X (one die)", _CDNA2, 1638, (47.9, None, 191.5, 191.5, None),
        "AMD Instinct MI250X", "AMD Instinct MI250X/MI250", units=110),
    _row("MI250 (one die)", _CDNA2, 1638, (45.3, None, 181, 181, None),
        "AMD Instinct MI250", "AMD Instinct MI250X/MI250", units=104),
    _row("MI210", _AMD, 1638, (45.3, None, 181, 181, None), "AMD Instinct MI210"),
    _row("MI100", _AMD, 1228.8, (46.1, None, 184.6, 92.3, None), "AMD Instinct MI100"),
    # -- others
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
