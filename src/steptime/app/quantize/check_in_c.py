"""Compiles the C sources of a network here, and runs inputs through them."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steptime.quantize.integer.integer_network import IntegerNetwork

FLAGS = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-fPIC")
_LIMIT_S = 300.0


def same_in_c(
    integer: IntegerNetwork, sources: Mapping[str, str], inputs: Any, *, arena_bytes: int
) -> int | None:
    """Return for how many inputs (num, ...) C gives the bits of the reference.

    None where there is no compiler, or it cannot make a library for this process.
    """
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in sources.items():
            (folder / file).write_text(text, encoding="utf-8")
        files = [file for file in sources if file.endswith(".c")]
        command = [compiler, *FLAGS, "-shared", "-o", "network.so", *files]
        try:
            made = subprocess.run(
                command, cwd=folder, capture_output=True, timeout=_LIMIT_S, check=False
            )
            library = ctypes.CDLL(str(folder / "network.so")) if made.returncode == 0 else None
        except (OSError, subprocess.TimeoutExpired):
            return None
        return None if library is None else _num_same(library, integer, inputs, arena_bytes)


def _num_same(library: Any, integer: IntegerNetwork, inputs: Any, arena_bytes: int) -> int:
    import numpy as np

    given = integer.to_bytes(inputs)
    wanted = integer.run(given)
    arena = np.zeros(arena_bytes, dtype=np.int8)
    num = 0
    for one, expected in zip(given, wanted, strict=True):
        found = np.zeros_like(expected)
        places = (np.ascontiguousarray(one), found, arena)
        library.network_run(*(ctypes.c_void_p(place.ctypes.data) for place in places))
        num += bool((found == expected).all())
    return num
