"""Writes the patched files and becomes the command; runs inside a contained trial alone.

In: words: how many files, for each where its new bytes lie and where they belong, then the command.
The trial's layer holds the writes, so the user's own files stay as they are. This file runs with
the standard library and nothing of ours.
"""

from __future__ import annotations

import os
import shutil
import sys


def write_and_start(words: list[str]) -> None:
    """Write the files, and become the command."""
    num_words = 1 + 2 * int(words[0])
    for new, old in zip(words[1:num_words:2], words[2:num_words:2], strict=True):
        shutil.copyfile(new, old)
    command = words[num_words:]
    os.execvp(command[0], command)


if __name__ == "__main__":
    write_and_start(sys.argv[1:])
