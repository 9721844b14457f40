"""What the script's signal handlers raise belongs to the script, wherever it is raised.

A handler runs between two instructions of the main thread, and they may be ours: in a hook that
guards the training against our own failures, or in a callback whose errors Python drops.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

_HAS_STAR = 0x04  # of a code's flags: it takes further positional arguments


def is_from_handler(error: BaseException) -> bool:
    """Return whether a signal handler raised this.

    A handler is handed the frame that it interrupted, and nobody else is handed the frame of the
    function that called.
    """
    link = error.__traceback__
    while link is not None and link.tb_next is not None:
        inner = link.tb_next.tb_frame
        code = inner.f_code
        names = code.co_varnames[: code.co_argcount + bool(code.co_flags & _HAS_STAR)]
        given = [inner.f_locals.get(name) for name in names]
        if any(one is link.tb_frame for one in given) or any(
            one is link.tb_frame for more in given if type(more) is tuple for one in more
        ):
            return True
        link = link.tb_next
    return False


def let_through(error: BaseException) -> None:
    """Raise an error again that is the script's: an interrupt, or what its signal handler raised.

    Python's own handler of an interrupt leaves no frame to know it by.
    """
    if isinstance(error, KeyboardInterrupt) or is_from_handler(error):
        raise error


def raise_bursts(place: str) -> None:
    """Raise the error that is caught again unless it is an Exception: where nobody counts failures.

    Args:
        place: where we failed, of no interest here.
    """
    error = sys.exc_info()[1]
    if error is not None and not isinstance(error, Exception):
        raise error


def raise_later(error: BaseException) -> None:
    """Raise an error in the caller's caller, at its next line or in what it calls next.

    For code that runs where an error would be dropped. A trace function, for that one moment,
    raises it. Python then has none, as wherever a handler raises in a trace function.
    """
    own = sys._getframe(1)
    frame = own.f_back
    if frame is None:
        return
    local = frame.f_trace
    link = handled = error.__traceback__
    while link is not None:
        here, link = link.tb_frame, link.tb_next
        if here.f_code.co_filename == own.f_code.co_filename:
            handled = link  # the frames of the handler, below the one of ours that it interrupted

    def interrupt(at: FrameType, event: str, argument: Any) -> None:
        if at is own:
            return
        frame.f_trace = local
        raise error.with_traceback(handled)

    frame.f_trace = interrupt
    sys.settrace(interrupt)
