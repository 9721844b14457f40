"""Networks of bytes on Cortex-M: no function of floating point, and the same bits on a board."""

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from steptime.quantize.c.write_c import c_sources
from unit.test_quantize_parts import NETS, WIDER, made

COMPILER, NAMES, BOARD = "arm-none-eabi-gcc", "arm-none-eabi-nm", "qemu-system-arm"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples/quantize"
FLAGS = ["-mthumb", "-Os", "-std=c99", "-Wall", "-Wextra", "-Werror", "-ffreestanding"]
EMULATED = [BOARD, "-M", "mps2-an385", "-nographic", "-semihosting", "-kernel", "network.elf"]
SOFT_FLOAT = r"__aeabi_c?[fd]\w+|__aeabi_(?:u?[il]2[fd])|__\w+[sdt]f\w*"

needs_compiler = pytest.mark.skipif(
    not shutil.which(COMPILER) or not shutil.which(NAMES), reason=f"there is no {COMPILER}"
)
needs_board = pytest.mark.skipif(not shutil.which(BOARD), reason=f"there is no {BOARD}")


made = cache(made)


def run(folder, *words):
    return subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout


def write(integer, folder):
    for name, text in c_sources(integer).items():
        (folder / name).write_text(text)


def floats_of(folder, file):
    """The functions for floating point that a file calls where the processor has none."""
    run(folder, COMPILER, "-mcpu=cortex-m0", *FLAGS, "-c", file, "-o", "one.o")
    return [name for name in run(folder, NAMES, "-u", "one.o").split()
            if re.fullmatch(SOFT_FLOAT, name)]  # fmt: skip


def run_on_board(folder):
    sources = [EXAMPLE / "main.c", "network.c", "kernels.c"]
    run(folder, COMPILER, "-mcpu=cortex-m3", *FLAGS, "-nostdlib", "-I.",
        "-T", EXAMPLE / "board.ld", *sources, "-lgcc", "-o", "network.elf")  # fmt: skip
    return subprocess.run(EMULATED, cwd=folder, capture_output=True, text=True, timeout=300)


@needs_compiler
@pytest.mark.parametrize(
    ("name", "keep"), [*((name, ()) for name in NETS), ("residual", (("*", "int16"),))]
)
def test_a_cortex_m0_needs_no_function_for_floating_point(name, keep, tmp_path):
    write(made(name, keep)[3], tmp_path)

    assert floats_of(tmp_path, "kernels.c") == floats_of(tmp_path, "network.c") == []


@needs_compiler
@pytest.mark.parametrize(
    "planted",
    [
        "float f(float a, float b) { return a * b; }",
        "double f(int a) { return a; }",
        "int f(float a) { return (int)a; }",
    ],
)
def test_planted_floating_point_is_seen_in_the_same_way(planted, tmp_path):
    (tmp_path / "planted.c").write_text(planted)

    assert floats_of(tmp_path, "planted.c")


@needs_compiler
@needs_board
@pytest.mark.parametrize(
    ("name", "keep"), [*((name, ()) for name in NETS), ("pictures", tuple(WIDER["pictures"]))]
)
def test_a_board_makes_the_bits_of_the_reference(name, keep, tmp_path):
    integer = made(name, keep)[3]
    write(integer, tmp_path)
    step = integer.steps.get(integer.input)  # words have none
    kind = np.dtype(f"int{step.bits if step else 8}")
    ends = np.iinfo(kind)
    random = np.random.default_rng(2)
    shape = (20, *integer.shapes[integer.input])
    given = random.integers(ends.min, ends.max, shape, dtype=kind, endpoint=True)
    (tmp_path / "inputs.bin").write_bytes(given.tobytes())
    assert run_on_board(tmp_path).returncode == 0
    assert (tmp_path / "board.bin").read_bytes() == integer.run(given).tobytes()


@needs_compiler
@needs_board
def test_a_board_without_inputs_says_so(tmp_path):
    write(made("perceptron")[3], tmp_path)
    found = run_on_board(tmp_path)
    assert found.returncode
    assert "no inputs.bin" in found.stdout + found.stderr
