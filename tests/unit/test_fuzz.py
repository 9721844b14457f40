"""Some cases of `benchmarks/verify/fuzz.py`, which makes thousands: no failure, hang or memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "verify" / "fuzz.py"


@pytest.mark.slow("it runs 300 damaged cases, of some 50 ms each, after making the whole ones")
@pytest.mark.skipif(sys.platform != "linux", reason="the cases run in forked children")
def test_damaged_things_end_in_a_sentence(tmp_path: Path) -> None:
    out = tmp_path / "fuzz.json"
    ended = subprocess.run(
        [sys.executable, str(BENCHMARK), "--count", "60", "--quick", "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
