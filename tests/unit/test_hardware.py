"""The names that drivers give to devices, and the row of the table that each one has."""

from types import SimpleNamespace

import pytest

from steptime.core.devices.accelerators import ACCELERATORS
from steptime.core.devices.hardware import find_accelerator
from steptime.guest.frameworks.torch.process_head import describe_device

GIB = 2**30

# What nvidia-smi and torch.cuda.get_device_name say, and the part; None: knowingly unknown.
DRIVER_NAMES = {
    "NVIDIA H100 80GB HBM3": "H100 SXM 80GB",
    "NVIDIA H100 PCIe": "H100 PCIe 80GB",
    "NVIDIA H100 NVL": "H100 NVL",
    "NVIDIA H200": "H200 SXM 141GB",
    "NVIDIA H200 NVL": "H200 NVL",
    "NVIDIA GH200 144G HBM3e": "GH200 144GB",
    "NVIDIA GH200 120GB": "GH200 96GB",
    "NVIDIA H20": "H20",
    "NVIDIA B200": "B200",
    "NVIDIA GB200": "GB200",
    "NVIDIA B300 SXM6 AC": "B300",
    "NVIDIA GB300": "GB300",
    "NVIDIA A100-SXM4-80GB": "A100 SXM 80GB",
    "A100-SXM4-80GB": "A100 SXM 80GB",
    "NVIDIA A100-SXM4-40GB": "A100 SXM 40GB",
    "A100-SXM4-40GB": "A100 SXM 40GB",
    "NVIDIA A100 80GB PCIe": "A100 PCIe 80GB",
    "NVIDIA A100-PCIE-80GB": "A100 PCIe 80GB",
    "NVIDIA A100-PCIE-40GB": "A100 PCIe 40GB",
    "A100-PCIE-40GB": "A100 PCIe 40GB",
    "NVIDIA A800-SXM4-80GB": "A800 SXM 80GB",
    "NVIDIA A800 80GB PCIe": "A800 PCIe 80GB",
    "NVIDIA A30": "A30",
    "NVIDIA A10": "A10",
    "NVIDIA A10G": "A10G",
    "NVIDIA A16": "A16",
    "NVIDIA A2": "A2",
    "NVIDIA A40": "A40",
    "NVIDIA L4": "L4",
    "NVIDIA L40": "L40",
    "NVIDIA L40S": "L40S",
    "Tesla T4": "T4",
    "Tesla V100-SXM2-16GB": "V100 SXM2",
    "Tesla V100-SXM2-32GB": "V100 SXM2",
    "Tesla V100-SXM3-32GB": "V100 SXM3",
    "Tesla V100-PCIE-16GB": "V100 PCIe",
    "Tesla V100-PCIE-32GB": "V100 PCIe",
    "Tesla V100S-PCIE-32GB": "V100S PCIe",
    "Tesla P100-SXM2-16GB": "P100 SXM2",
    "Tesla P100-PCIE-16GB": "P100 PCIe 16GB",
    "Tesla P40": "P40",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "RTX PRO 6000 Blackwell Workstation",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": "RTX PRO 6000 Blackwell Max-Q",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "RTX PRO 6000 Blackwell Server",
    "NVIDIA RTX 6000 Ada Generation": "RTX 6000 Ada",
    "NVIDIA RTX 5000 Ada Generation": "RTX 5000 Ada",
    "NVIDIA RTX 4000 Ada Generation": "RTX 4000 Ada",
    "NVIDIA RTX A6000": "RTX A6000",
    "NVIDIA RTX A5000": "RTX A5000",
    "NVIDIA RTX A4000": "RTX A4000",
    "Quadro RTX 8000": "Quadro RTX 8000",
    "Quadro RTX 6000": "Quadro RTX 6000",
    "NVIDIA GeForce RTX 5090": "RTX 5090",
    "NVIDIA GeForce RTX 5080": "RTX 5080",
    "NVIDIA GeForce RTX 5070 Ti": "RTX 5070 Ti",
    "NVIDIA GeForce RTX 4090": "RTX 4090",
    "NVIDIA GeForce RTX 4090 D": "RTX 4090 D",
    "NVIDIA GeForce RTX 4080": "RTX 4080",
    "NVIDIA GeForce RTX 4080 SUPER": "RTX 4080 SUPER",
    "NVIDIA GeForce RTX 4070 Ti": "RTX 4070 Ti",
    "NVIDIA GeForce RTX 4070 Ti SUPER": "RTX 4070 Ti SUPER",
    "NVIDIA GeForce RTX 3090": "RTX 3090",
    "GeForce RTX 3090": "RTX 3090",
    "NVIDIA GeForce RTX 3090 Ti": "RTX 3090 Ti",
    "NVIDIA GeForce RTX 3080 Ti": "RTX 3080 Ti",
    "NVIDIA GeForce RTX 2080 Ti": "RTX 2080 Ti",
    "GeForce RTX 2080 Ti": "RTX 2080 Ti",
    "NVIDIA TITAN RTX": "TITAN RTX",
    "TITAN RTX": "TITAN RTX",
    "NVIDIA GeForce GTX 1080 Ti": "GTX 1080 Ti",
    "AMD Instinct MI355X": "MI355X",
    "AMD Instinct MI325X": "MI325X",
    "AMD Instinct MI300X": "MI300X",
    "AMD Instinct MI300A": "MI300A",
    "AMD Instinct MI250X": "MI250X (one die)",
    "AMD Instinct MI250": "MI250 (one die)",
    "AMD Instinct MI210": "MI210",
    "AMD Instinct MI100": "MI100",
    # knowingly unknown: another clock, another number of units, a part of a device, no source read
    "NVIDIA GeForce RTX 4090 Laptop GPU": None,
    "NVIDIA GeForce RTX 5090 Laptop GPU": None,
    "NVIDIA GeForce RTX 5090 D": None,
    "NVIDIA RTX A2000 12GB": None,
    "NVIDIA A100-SXM-64GB": None,
    "NVIDIA A100-SXM4-40GB MIG 1g.5gb": None,
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb": None,
    "NVIDIA H800": None,
    "NVIDIA H100 80GB HBM2e": None,
    "NVIDIA GB10": None,
    "NVIDIA L20": None,
    "GRID A100X-40C": None,
    "NVIDIA Graphics Device": None,
    "AMD Instinct MI308X": None,
    "Radeon RX 7900 XTX": None,
    "Tesla K80": None,
    "NVIDIA H100": None,
    "Orin": None,
}


@pytest.mark.parametrize("name", DRIVER_NAMES)
def test_a_driver_s_name_has_one_row_or_knowingly_none(name: str) -> None:
    found = find_accelerator(name)

    assert (None if found is None else found.name) == DRIVER_NAMES[name]


def test_a_row_has_dense_peaks_and_a_bandwidth() -> None:
    found = find_accelerator("NVIDIA H100 80GB HBM3")

    assert found is not None
    assert found.peak_flops_per_s["bf16"] == 989e12
    assert found.bandwidth_bytes_per_s == 3350e9
    for name in ("cpu", "", None):
        assert find_accelerator(name) is None


def test_the_names_are_enough_and_each_row_of_one_is_alone() -> None:
    known = {name for name, part in DRIVER_NAMES.items() if part is not None}

    assert len(DRIVER_NAMES) >= 63
    for name in known:
        bare = name.removeprefix("NVIDIA ")
        rows = [
            one
            for one in ACCELERATORS
            if bare in [other.removeprefix("NVIDIA ") for other in one.device_names]
        ]
        assert len(rows) == 1, name


def test_no_name_takes_another_one_s_row_by_its_beginning_or_its_end() -> None:
    for one in ACCELERATORS:
        for name in one.device_names:
            for other in (f"{name} Laptop GPU", f"{name} D2", f"{name}-1Q", f"X {name}", name[:-1]):
                found = find_accelerator(other)
                assert found is None or other in (found.name, *found.device_names)


@pytest.mark.parametrize(
    ("mib", "part", "bandwidth"),
    [(97871, "GH200 96GB", 4000e9), (146831, "GH200 144GB", 4900e9)],
)
def test_the_two_memories_of_a_gh200_differ_by_their_size(
    mib: int, part: str, bandwidth: float
) -> None:
    found = find_accelerator("NVIDIA GH200 480GB", memory_bytes=mib * 2**20)

    assert found is not None
    assert (found.name, found.bandwidth_bytes_per_s) == (part, bandwidth)
    assert found.peak_flops_per_s["bf16"] == 989e12


def test_a_gh200_whose_memory_is_not_known_has_its_peaks_without_a_bandwidth() -> None:
    found = find_accelerator("NVIDIA GH200 480GB")

    assert found is not None
    assert (found.name, found.bandwidth_bytes_per_s) == ("GH200 480GB", None)
    assert found.peak_flops_per_s["bf16"] == 989e12
    assert find_accelerator("NVIDIA GH200 480GB", memory_bytes=48 * GIB) is None


def test_parts_of_one_name_with_other_peaks_are_unknown_until_something_tells_them_apart() -> None:
    name = "NVIDIA GeForce RTX 3080"

    assert find_accelerator(name) is None
    for gib, tflops in ((10, 29.8), (12, 30.6)):
        found = find_accelerator(name, memory_bytes=int(0.98 * gib * GIB))
        assert found is not None
        assert found.peak_flops_per_s["fp32"] == tflops * 1e12


def test_the_dies_of_an_mi250_differ_by_their_compute_units() -> None:
    name = "AMD Instinct MI250X/MI250"
    units = {110: "MI250X (one die)", 104: "MI250 (one die)"}

    assert find_accelerator(name) is None
    for number, part in units.items():
        found = find_accelerator(name, memory_bytes=64 * GIB, num_multiprocessors=number)
        assert found is not None
        assert found.name == part


@pytest.mark.parametrize(
    ("name", "num", "share"),
    [
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 14, 14 / 108),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 42, 42 / 108),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", 16, 16 / 132),
        ("NVIDIA GH200 480GB MIG 2g.24gb", 32, 32 / 132),
    ],
)
def test_a_slice_has_its_multiprocessors_part_of_the_peak(
    name: str, num: int, share: float
) -> None:
    whole = find_accelerator(name.partition(" MIG")[0])
    found = find_accelerator(name, memory_bytes=5 * GIB, num_multiprocessors=num)

    assert found is not None
    assert whole is not None
    assert found.peak_flops_per_s["bf16"] == pytest.approx(
        share * whole.peak_flops_per_s["bf16"], rel=1e-12
    )
    assert found.bandwidth_bytes_per_s is None
    assert name.partition(" MIG")[2] in found.name
    assert f"{num} of" in found.source


def test_a_slice_of_an_unknown_device_or_a_larger_one_than_the_device_is_unknown() -> None:
    for name, num in (
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 200),
        ("NVIDIA H800 MIG 1g.10gb", 16),
        ("NVIDIA L4 MIG 1g.5gb", 8),
    ):
        assert find_accelerator(name, num_multiprocessors=num) is None


# The rate of 16-bit products over that of fp32, without matrix units: a wrong column shows.
RATIOS = {"RTX 50": 2, "RTX 40": 2, "RTX 30": 2, "RTX 20": 4, "RTX A": 4, "RTX PRO": 4, "Quadro": 8}


@pytest.mark.parametrize("beginning", RATIOS)
def test_16_bit_products_have_the_generation_s_rate_with_sums_in_fp32(beginning: str) -> None:
    rows = [one for one in ACCELERATORS if one.name.startswith(beginning)]

    assert rows
    for one in rows:
        if "Ada" in one.name or "fp16" not in one.peak_flops_per_s:
            continue
        ratio = one.peak_flops_per_s["fp16"] / one.peak_flops_per_s["fp32"]
        assert ratio == pytest.approx(RATIOS[beginning], rel=0.01), one.name


def test_the_guest_says_what_tells_parts_of_one_name_apart() -> None:
    found = SimpleNamespace(total_memory=97871 * 2**20, multi_processor_count=132)
    cuda = SimpleNamespace(
        current_device=lambda: 0,
        get_device_properties=lambda _: found,
        get_device_name=lambda: "NVIDIA GH200 480GB",
    )

    told = describe_device(SimpleNamespace(cuda=cuda))

    assert told == {
        "device_name": "NVIDIA GH200 480GB",
        "device_bytes": 97871 * 2**20,
        "num_multiprocessors": 132,
    }
