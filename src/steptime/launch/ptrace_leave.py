"""The kernel's leave to look into the command, where it asks for a word from the command itself.

Under Yama's scope 1 (Ubuntu's default) a process may be looked at by its ancestors alone. We are
one, the program that takes stacks is not; between fork and exec the command's process says that
our children may look as we may. It gives nobody else anything, and the command cannot see it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
_PR_SET_PTRACER = 0x59616D61  # linux/prctl.h
_ASKS = "1"  # 0 needs no leave; 2 and 3 take none


def load_permit(scope: Path = SCOPE) -> Callable[[int], None] | None:
    """What lets a process and its children look into the process that calls it; None if needless.

    Loaded before the fork: between fork and exec nothing is imported.
    """
    try:
        if scope.read_text().strip() != _ASKS:
            return None
        import ctypes

        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, ImportError, AttributeError):
        return None

    def permit(pid: int) -> None:
        # The kernel's other answers leave all as it was.
        prctl(_PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)

    return permit
