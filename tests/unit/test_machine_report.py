"""What people read of a machine."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from steptime.cli.main import main
from steptime.machine.values.inventory_values import (
    Cpu,
    DataFolder,
    Gpu,
    Inventory,
    Link,
    Mount,
    Nic,
    NumaNode,
    ProcessLimits,
    Ram,
    RdmaDevice,
)
from steptime.report.blocks.machine.inventory_report import inventory_blocks
from steptime.report.text.paint_text import print_blocks

GIB = 1 << 30
H100 = "NVIDIA H100 80GB HBM3"


def make_inventory(**parts: Any) -> Inventory:
    cpu = Cpu(model="Xeon Gold", architecture="x86_64", num_threads=8, num_usable=8, num_cores=8)
    given = {
        "cpu": cpu,
        "ram": Ram(),
        "limits": ProcessLimits(),
        "data": DataFolder(folder="/data"),
    }
    return Inventory(**{**given, **parts})


def make_gpu(index: int) -> Gpu:
    return Gpu(index=index, vendor="nvidia", has_driver=True, name=H100, memory_bytes=80 * GIB)


def text_of(found: Inventory) -> str:
    file = io.StringIO()
    console = Console(file=file, width=100)
    print_blocks(inventory_blocks(found), console=console)
    return file.getvalue()


def test_equal_gpus_are_counted_and_their_links_said_once() -> None:
    gpus = tuple(make_gpu(i) for i in range(4))
    links = tuple(
        Link(first=f"GPU{i}", second=f"GPU{j}", kind="NV18") for i in range(4) for j in range(i)
    )
    text = text_of(make_inventory(gpus=gpus, links=links, nvidia_driver="570", cuda_driver="12.8"))

    assert f"4 × {H100}, 80.0 GiB" in text
    assert "all 4 reach each other by NV18" in text
    assert "driver 570, CUDA 12.8" in text


def test_a_gpu_that_others_use_says_so() -> None:
    gpus = (replace(make_gpu(0), busy_fraction=0.97), replace(make_gpu(1), busy_fraction=0.0))
    text = text_of(make_inventory(gpus=gpus))

    assert "GPU0 is 97.0 % busy" in text
    assert "GPU1" not in text


def test_links_that_differ_are_drawn_as_a_matrix() -> None:
    gpus = tuple(make_gpu(i) for i in range(2))
    links = (
        Link(first="GPU0", second="GPU1", kind="NV4"),
        Link(first="GPU0", second="mlx5_0", kind="PIX"),
        Link(first="GPU1", second="mlx5_0", kind="SYS"),
    )
    lines = text_of(make_inventory(gpus=gpus, links=links)).splitlines()
    rows = [line.split() for line in lines]

    assert ["GPU0", "X", "NV4", "PIX"] in rows
    assert ["mlx5_0", "PIX", "SYS", "X"] in rows


def test_a_gpu_on_the_bus_is_said_to_be_not_asked_and_why() -> None:
    gpu = Gpu(index=0, vendor="nvidia", has_driver=False)
    text = text_of(make_inventory(gpus=(gpu,), missing={"gpus": "nvml_error_9"}))

    assert "1 of nvidia on the PCI bus, not asked" in text
    assert "the driver is not loaded" in text


def test_an_ordinary_machine_has_no_gpu() -> None:
    assert "gpus       none\n" in text_of(make_inventory())


def test_a_container_with_fewer_cores_says_so() -> None:
    cpu = Cpu(model=None, architecture="aarch64", num_threads=64, num_usable=3)
    limits = ProcessLimits(container="kubernetes", cpu_quota_cores=2.5, memory_bytes=8 * GIB)
    text = text_of(make_inventory(cpu=cpu, limits=limits))

    assert "aarch64 · 64 cores · 3 usable here" in text
    assert "in a container (kubernetes) · quota 2.5 cores · memory 8.00 GiB" in text


def test_nodes_and_networks_are_named() -> None:
    nodes = tuple(
        NumaNode(node=i, cpus=f"{4 * i}-{4 * i + 3}", distances=(10, 21)) for i in range(2)
    )
    ram = Ram(total_bytes=64 * GIB)
    nics = (Nic(name="eth0", is_up=True, speed_bits_per_s=1e11), Nic(name="eth1", is_up=False))
    rdma = (RdmaDevice(name="mlx5_0", is_active=True, speed_bits_per_s=4e11),)
    text = text_of(make_inventory(ram=ram, numa=nodes, nics=nics, rdma=rdma))

    assert "2 NUMA nodes, distances up to 21 (0: cores 0-3, 1: cores 4-7)" in text
    assert "eth0 100 Gb/s · eth1 down · mlx5_0 400 Gb/s (RDMA)" in text


def test_data_on_a_network_file_system_says_so() -> None:
    mount = Mount(folder="/data", kind="nfs4", source="box:/data", is_network=True)
    text = text_of(make_inventory(data=DataFolder(folder="/data", mount=mount)))

    assert "/data · nfs4, over the network" in text


def test_what_is_not_told_has_its_reason() -> None:
    assert "not told   NUMA nodes: this system does not tell" in text_of(
        make_inventory(missing={"numa": "not_told"})
    )


def test_a_folder_that_is_not_there_is_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["machine", "--data", str(tmp_path / "none")]) == 2
    assert "--data: there is no folder" in capsys.readouterr().err


def test_the_inventory_comes_as_a_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["machine", "--data", str(tmp_path), "--inventory", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)

    assert (document["command"], document["status"]) == ("machine", "ok")
    assert document["data"]["inventory"]["data"]["folder"] == str(tmp_path.resolve())
