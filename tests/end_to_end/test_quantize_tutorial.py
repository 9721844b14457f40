"""The tutorial on a network of bytes, typed as written: each command, its code and its output."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

for needed in ("torch", "onnxruntime", "sklearn", "mapie"):
    pytest.importorskip(needed)

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/tutorial/quantize.md").read_text("utf-8")
BLOCKS = re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
TYPED = [
    typed
    for block in BLOCKS
    for typed in re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
]
OF_HERE = r"\n(?:classes|speed) .*?(?=\n\w)"
"""What depends on the processor: the time, and which classes lose by its rounding."""


def told(text: str) -> list[str]:
    """The words of an output: its numbers depend on the processor in their last digits."""
    return re.sub(r"[-+]?\d[\d.,e-]*", "#", re.sub(OF_HERE, "", text, flags=re.DOTALL)).split()


@pytest.mark.slow("it trains, quantizes, compiles and emulates")
@pytest.mark.skipif(
    not shutil.which("arm-none-eabi-gcc") or not shutil.which("qemu-system-arm"),
    reason="there is no arm-none-eabi-gcc or no qemu-system-arm",
)
@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")
def test_each_command_of_the_page_does_what_the_page_says(tmp_path):
    folder = tmp_path / "quantize"
    shutil.copytree(ROOT / "examples/quantize", folder)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "80", "OMP_NUM_THREADS": "1"}
    assert len(TYPED) >= 11
    wrong = {}
    for command, output in TYPED:
        if command.startswith("cd "):
            folder = tmp_path / Path(command.removeprefix("cd ")).name
            folder = folder if folder.is_dir() else tmp_path / "quantize" / folder.name
        if command.startswith(("cd ", "cp ")):
            continue
        made = subprocess.run(
            command, shell=True, cwd=folder, env=environment, capture_output=True, text=True
        )
        found = [told(made.stdout), told(made.stderr)]  # QEMU prints on the latter
        if made.returncode or (output and told(output) not in found):
            wrong[command] = (made.returncode, made.stdout[-2000:] + made.stderr[-500:])
    assert not wrong
    assert (folder / "board.bin").read_bytes() == (folder / "outputs.bin").read_bytes()
