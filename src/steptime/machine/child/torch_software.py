"""What torch says about itself, as one line of JSON; run by file in the user's Python.

It imports torch, asks and ends. No tensor is made, and GPUs are initialized only to be counted.
"""

from __future__ import annotations

import glob
import importlib.util
import json
import os
import platform
import sys
from typing import Any


def main() -> None:
    """Print the answers; a question that fails is left out."""
    told: dict[str, Any] = {"python": sys.executable, "python_version": platform.python_version()}
    try:
        import torch
    except ImportError as error:
        is_absent = getattr(error, "name", None) == "torch"
        told["missing"] = "no_torch" if is_absent else "torch_does_not_load"
        told["detail"] = str(error)[:500]
    except (OSError, RuntimeError) as error:
        told["missing"], told["detail"] = "torch_does_not_load", str(error)[:500]
    else:
        told.update(ask_torch(torch))
    # A library may have printed something before.
    sys.stdout.write("\n" + json.dumps(told) + "\n")


def ask_torch(torch: Any) -> dict[str, Any]:
    """Return each answer by the name of its question."""
    questions = {
        "torch": lambda: str(torch.__version__),
        "cuda": lambda: torch.version.cuda,
        "hip": lambda: getattr(torch.version, "hip", None),
        "cudnn_built": lambda: list(torch._C._cudnn.getCompileVersion()),
        "cudnn_here": lambda: list(torch._C._cudnn.getRuntimeVersion()),
        "has_nccl": torch.distributed.is_nccl_available,
        "nccl": lambda: ".".join(map(str, torch.cuda.nccl.version())),
        "architectures": lambda: torch._C._cuda_getArchFlags().split(),
        "num_threads": torch.get_num_threads,
        "matmul_precision": torch.get_float32_matmul_precision,
        "cudnn_benchmark": lambda: bool(torch.backends.cudnn.benchmark),
        "pins": read_pins,
        "companions": read_companions,
        "installer": read_installer,
        "has_pip": lambda: importlib.util.find_spec("pip") is not None,
        "is_writable": lambda: is_own(os.path.dirname(os.path.dirname(torch.__file__))),
        "is_managed": is_managed,
        "cudnn_folders": find_cudnn,
    }
    told: dict[str, Any] = {}
    for name, question in questions.items():
        try:
            told[name] = question()
        except (AttributeError, ImportError, LookupError, OSError, RuntimeError, TypeError):
            continue
    if told.get("cuda"):
        told.update(count_devices(torch))
    return told


def count_devices(torch: Any) -> dict[str, Any]:
    """Return how many GPUs it can use, and what it says if there are none."""
    import warnings

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            is_available = torch.cuda.is_available()
            num = torch.cuda.device_count() if is_available else 0
        except (AssertionError, RuntimeError) as error:
            return {"num_devices": 0, "cuda_error": str(error)[:300]}
    words = str(caught[0].message)[:300] if caught and not num else None
    return {"num_devices": num, "cuda_error": words}


def read_pins() -> list[list[str]]:
    """Return NVIDIA's packages that torch requires: name, version, and the installed version."""
    import importlib.metadata as metadata
    import re

    found = []
    for line in metadata.requires("torch") or ():
        wanted, _, marker = line.partition(";")
        match = re.match(r"(nvidia-[\w.-]+)\s*\(?==\s*([\w.]+)\)?\s*$", wanted.strip())
        if match is None or "extra" in marker:
            continue
        try:
            found.append([match.group(1), match.group(2), metadata.version(match.group(1))])
        except metadata.PackageNotFoundError:
            continue
    return found


def read_companions() -> list[list[str]]:
    """Return the packages that only work with the build of torch that they were made for."""
    import importlib.metadata as metadata

    found = []
    for name in ("torchvision", "torchaudio"):
        try:
            found.append([name, metadata.version(name)])
        except metadata.PackageNotFoundError:
            continue
    return found


def read_installer() -> str | None:
    """Return what installed torch, as its metadata has it."""
    import importlib.metadata as metadata

    if glob.glob(os.path.join(glob.escape(sys.prefix), "conda-meta", "pytorch-*.json")):
        return "conda"
    words = (metadata.distribution("torch").read_text("INSTALLER") or "").split()
    return words[0] if words else None


def is_own(folder: str) -> bool:
    """Return whether this user made the folder, and may write to it."""
    return os.stat(folder).st_uid == os.geteuid() and os.access(folder, os.W_OK)


def is_managed() -> bool:
    """Return whether the distribution keeps the packages of this Python: PEP 668."""
    import sysconfig

    if sys.prefix != sys.base_prefix:  # an environment is its maker's
        return False
    return os.path.exists(os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED"))


def find_cudnn() -> list[str]:
    """Return the folders of LD_LIBRARY_PATH that hold a cuDNN, which comes before torch's own."""
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return [
        folder
        for folder in folders
        if folder and glob.glob(os.path.join(glob.escape(folder), "libcudnn*.so*"))
    ]


if __name__ == "__main__":
    main()
