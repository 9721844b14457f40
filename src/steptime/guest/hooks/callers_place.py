"""Calls what a wrapper stands for from a frame that has the place of the wrapper's caller.

A warning names the frame that runs, in C, or one a number of frames above, in Python. With a
wrapper of ours between, that is the wrapper. So the wrapper calls through a frame that has the
file, the line and the globals of its caller: what looks up the stack finds the user's line.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any
from weakref import WeakMethod

from .patching import pass_as_torchs

MOST_PLACES = 1000
"""Calling places that are kept; a script that makes more code than this builds each anew."""

_places: dict[tuple[int, int], tuple[CodeType, CodeType]] = {}
_dynamo: list[Callable[[], Any]] = []
"""What tells whether dynamo looks at the frames that run: it would compile one that stands in."""
_fail: list[WeakMethod[Callable[[str], None]]] = []


def stand_in(torch: Any, fail: Callable[[str], None]) -> None:
    """Tell of failures, and stand in for nobody while dynamo looks at the frames of a thread."""
    _fail[:] = [WeakMethod(fail)]
    pass_as_torchs(torch, from_callers_place)
    callback = getattr(torch._C._dynamo.eval_frame, "get_eval_frame_callback", None)
    _dynamo[:] = [] if callback is None else [callback]


_CALL = (lambda function, args, kwargs: function(*args, **kwargs)).__code__


def from_callers_place(frame: FrameType, function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Call `function` as if the code of `frame` did so where it stands now.

    An exception leaves without the entry of the frame that stands in.
    """
    standing_in = None
    try:
        if not _dynamo or _dynamo[0]() is None:
            standing_in = _stand_in(frame)
    except BaseException:
        for reference in _fail:
            if (fail := reference()) is not None:
                fail("places")
    if standing_in is None:
        return function(*args, **kwargs)
    try:
        return standing_in(function, args, kwargs)
    except BaseException as error:
        link = error.__traceback__  # this frame, then the one that stands in
        if link is not None and link.tb_next is not None:
            error.__traceback__ = link.tb_next.tb_next
        raise


def _stand_in(frame: FrameType) -> Callable[..., Any]:
    code = frame.f_code
    key = id(code), frame.f_lasti
    known = _places.get(key)
    if known is None or known[0] is not code:
        ours = _CALL.replace(
            co_filename=code.co_filename, co_firstlineno=frame.f_lineno, co_name=code.co_name
        )
        known = code, ours
        if len(_places) < MOST_PLACES:
            _places[key] = known
    return FunctionType(known[1], frame.f_globals)
