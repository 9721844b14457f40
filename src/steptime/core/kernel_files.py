"""Whether this machine shows what nearly every command reads: /proc, on Linux."""

import os
import sys

from steptime.errors import NoProcError


def need_proc() -> None:
    """Check that the kernel tells of processes and of the machine.

    Raises:
        NoProcError: this is Linux, and /proc is not mounted.
    """
    if sys.platform == "linux" and not os.path.exists("/proc/self/stat"):
        raise NoProcError(
            "/proc is not mounted here, and Steptime reads processes and memory from it.",
            hint="Mount it: mount -t proc proc /proc",
        )
