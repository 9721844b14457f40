"""The kernel's permission to read the command's memory, which the command itself must grant.

Under Yama's scope 1 (Ubuntu's default) only its ancestors may read a process. We are an ancestor,
but the program that takes stacks is not. So between fork and exec, the command's process grants to
our children what we may do. Nobody else gets anything, and the command cannot see it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
_PR_SET_PTRACER = 0x59616D61  # linux/prctl.h
_ASKS = "1"  # 0 needs no permission; 2 and 3 accept none


def load_permit(scope: Path = SCOPE) -> Callable[[int], None] | None:
    """Return what lets a process and its children read its caller; None where it is not needed.

    It is loaded before the fork, because nothing may be imported between fork and exec.
    """
    try:
        if scope.read_text().strip() != _ASKS:
            return None
        import ctypes

        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, ImportError, AttributeError):
        return None

    def permit(pid: int) -> None:
        # Whatever else the kernel answers changes nothing.
        prctl(_PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)

    return permit
