"""Finds torch's own warnings in the kept output of a command.

In: the file with the output. Out: `LibraryMessage`s. A command whose output is not kept is not
asked for it: a pipe in the place of a terminal would be noticed.
"""

from __future__ import annotations

import re
from pathlib import Path

from steptime.measure.values.said import LibraryMessage
from steptime.record.regular_file import open_regular

MAX_OUTPUT_BYTES = 100_000_000

_GLOG = re.compile(r"^(?:\[rank\d+\]:)?\[?[WE]\d{4} [\d:.]+ *(?:\d+ )?(\S+?):\d+\] (.+)$")
"""A warning of torch's in C++: `[W1129 12:39:02.133 reducer.cpp:1503] Warning: ...`."""

_TOKENIZERS = re.compile(r"^(huggingface/tokenizers): (.+)$")


def read_output(path: Path) -> tuple[LibraryMessage, ...]:
    """Return torch's own warnings in the kept output of a command, a file that need not exist."""
    found: list[LibraryMessage] = []
    try:
        with open_regular(path, max_bytes=MAX_OUTPUT_BYTES) as file:
            for line in file:
                text = line.decode("utf-8", errors="replace").rstrip()
                match = _GLOG.match(text) or _TOKENIZERS.match(text)
                if match is not None:
                    text = match[2].removeprefix("Warning: ")[:600]
                    found.append(LibraryMessage(channel="stderr", who=match[1], text=text))
    except OSError:
        pass
    return tuple(found)
