"""A rank that starts other Pythons on the way: one that uses torch, one that does not."""

import runpy
import subprocess
import sys
from pathlib import Path

USES_TORCH = "import torch; torch.nn.Linear(2, 1)(torch.ones(2)).sum()"

for code in (USES_TORCH, "print(end='')"):
    subprocess.run([sys.executable, "-c", code], check=True)
runpy.run_path(str(Path(__file__).with_name("launched.py")), run_name="__main__")
