"""The compiled kernels of MaxK: built once on the machine that uses them, then loaded.

`load_library` returns a handle on the built library, or None where it cannot be built (no compiler,
no place to write), which is said once. The source speaks plain C to the outside, so a
build fits any torch and any Python; its name holds a hash of the source. Who calls the kernels, and
what is used in their place, is decided in `maxk_paths`.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from importlib import resources
from pathlib import Path

SOURCE = Path(__file__).with_name("maxk_kernels.cpp")
# GCC 12 warns of its own headers for AVX-512; what is ours was compiled with -Wall and -Wextra.
FLAGS = ("-O3", "-w", "-std=c++17", "-shared", "-fPIC", "-pthread")
COMPILERS = ("c++", "g++", "clang++")
LIMIT_S = 300.0

logger = logging.getLogger(__name__)


def kept_in() -> Path:
    """The folder of the built library: below `TORCH_EXTENSIONS_DIR`, or the user's cache."""
    root = os.environ.get("TORCH_EXTENSIONS_DIR") or Path.home() / ".cache" / "torch_extensions"
    return Path(root) / "steptime"


@cache
def load_library() -> ctypes.CDLL | None:
    """The compiled kernels, built if they are not there yet; None where that cannot be done."""
    try:
        digest = hashlib.sha256(
            resources.files("steptime.graph").joinpath(SOURCE.name).read_bytes()
        ).hexdigest()[:12]
        built = kept_in() / f"steptime_maxk_{digest}.so"
        if not built.exists():
            logger.warning(
                "Steptime builds its MaxK kernels (%s), once, in about ten seconds, and keeps "
                "them in %s",
                SOURCE.name,
                built,
            )
            _build(built)
        return ctypes.CDLL(str(built))
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        first = str(error).strip().partition("\n")[0]
        logger.warning(
            "the MaxK kernels could not be built (%s); torch's own are used, which gain nothing. "
            "A C++ compiler would change that.",
            first,
        )
        return None


def _build(built: Path) -> None:
    """Compile beside the final place and move there, so that nobody loads half a library."""
    compiler = os.environ.get("CXX") or next(filter(shutil.which, COMPILERS), None)
    if compiler is None:
        raise FileNotFoundError(f"no C++ compiler was found ({', '.join(COMPILERS)}, or CXX)")
    built.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=built.parent))
    try:
        made = folder / built.name
        done = subprocess.run(
            [*shlex.split(compiler), *FLAGS, str(SOURCE), "-o", str(made)],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=LIMIT_S,
        )
        if done.returncode != 0:
            told = done.stderr.strip().partition("\n")[0]
            raise RuntimeError(f"{compiler} ended with {done.returncode}: {told}")
        made.replace(built)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
