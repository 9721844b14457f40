"""Private memory of processes, as /proc says it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from steptime.watch.host.private_memory import read_private

STATUS = """\
Name:\tpython
VmHWM:\t  1000 kB
VmRSS:\t   700 kB
RssAnon:\t   550 kB
RssFile:\t   100 kB
RssShmem:\t    50 kB
VmData:\t   600 kB
"""


def put(proc: Path, text: str) -> None:
    (proc / "7").mkdir()
    (proc / "7" / "status").write_text(text)


def test_the_peak_is_what_was_touched_without_files_and_what_is_untouched(tmp_path: Path) -> None:
    put(tmp_path, STATUS)

    found = read_private(7, proc=tmp_path)

    assert found is not None
    assert found.now == 600 << 10
    assert found.peak == (1000 - 100 - 50 + 600 - 550) << 10


@pytest.mark.parametrize("text", ["Name:\tkthreadd\n", "", STATUS.replace("1000 kB", "much")])
def test_what_says_nothing_is_unknown(tmp_path: Path, text: str) -> None:
    put(tmp_path, text)

    assert read_private(7, proc=tmp_path) is None
    assert read_private(8, proc=tmp_path) is None


@pytest.mark.skipif(sys.platform != "linux", reason="/proc as on Linux")
def test_this_process_has_some() -> None:
    found = read_private(os.getpid())

    assert found is not None
    assert found.peak > 1 << 20
