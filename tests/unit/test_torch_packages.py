"""Whose the packages of a Python are, as the process says that is asked for torch."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from steptime.machine.child import torch_software
from steptime.machine.read.read_software import parse_software
from steptime.machine.values.check_facts import Software


def test_packages_are_changed_only_in_a_folder_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert torch_software.is_own(str(tmp_path))

    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert not torch_software.is_own(str(tmp_path))


def test_a_python_that_the_distribution_keeps_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    assert not torch_software.is_managed()

    (tmp_path / "EXTERNALLY-MANAGED").touch()
    assert torch_software.is_managed()

    monkeypatch.setattr(sys, "base_prefix", "/elsewhere")  # an environment is its maker's
    assert not torch_software.is_managed()


def test_the_folders_that_hold_another_cudnn_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, file in (("mpi", "libmpi.so"), ("cudnn", "libcudnn.so.8")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}/mpi::{tmp_path}/cudnn:/nowhere")

    assert torch_software.find_cudnn() == [f"{tmp_path}/cudnn"]


def test_what_conda_installed_is_known_by_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (tmp_path / "conda-meta").mkdir()
    (tmp_path / "conda-meta" / "pytorch-2.5.1-py3.11_cuda12.4.json").touch()

    assert torch_software.read_installer() == "conda"


def test_what_the_child_says_of_the_packages_is_kept() -> None:
    told = {
        "python": "/p",
        "torch": "2.13.0+cu130",
        "companions": [["torchvision", "0.28.0+cu130"]],
        "installer": "uv",
        "has_pip": False,
        "is_writable": True,
        "is_managed": False,
        "cudnn_folders": ["/usr/local/cudnn"],
    }

    found = parse_software(json.dumps(told))

    assert isinstance(found, Software)
    assert found.companions == (("torchvision", "0.28.0+cu130"),)
    assert (found.installer, found.has_pip, found.is_writable) == ("uv", False, True)
    assert found.cudnn_folders == ("/usr/local/cudnn",)
