"""How a wrapper takes the place of a function of torch's and passes for it.

It does so for pickle, for `help`, for dynamo, and in the traceback of an exception that passes
through.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

NOT_OURS = "<frozen importlib._bootstrap>"
"""A file whose frames `warnings` passes over as it looks for who is to be named, and dynamo too:
with ours between them, a script and what it calls would be told other lines."""

PATCHES: list[tuple[Any, str, Any, Any]] = []
"""What was replaced: owner, name, what its namespace held before (None: nothing), ours."""


def replace(owner: Any, name: str, wrapper: Any, *, file_of: Any = None) -> None:
    """Replace `owner.name` by `wrapper`, which passes for it with pickle, help and dynamo."""
    original = owner.__dict__.get(name, None) if isinstance(owner, type) else None
    original = getattr(owner, name) if original is None else original
    original = original.__func__ if isinstance(original, staticmethod) else original
    functools.update_wrapper(wrapper, original)
    if not hasattr(original, "__module__"):  # a method in C; pickle finds it by these
        wrapper.__module__, wrapper.__qualname__ = owner.__module__, f"{owner.__name__}.{name}"
    code = getattr(file_of if file_of is not None else original, "__code__", None)
    if code is not None:
        wrapper.__code__ = wrapper.__code__.replace(
            co_filename=code.co_filename, co_firstlineno=code.co_firstlineno
        )
    put(owner, name, wrapper)


def put(owner: Any, name: str, ours: Any) -> None:
    """Give a class or a module something of ours under a name, and remember what it had."""
    PATCHES.append((owner, name, owner.__dict__.get(name), ours))
    setattr(owner, name, ours)


def put_back() -> None:
    """Take everything of ours away again, the latest first.

    Where the script has put something over ours, that stays: it calls ours, which then only calls
    what was there before.
    """
    while PATCHES:
        owner, name, before, ours = PATCHES.pop()
        if owner.__dict__.get(name) is not ours:
            continue
        _put_or_take(owner, name, before)


class Away:
    """Wrappers of ours that leave for a while, so that they cost nothing.

    Args:
        names: owners and names, among those in `PATCHES`; others are ignored.
    """

    def __init__(self, names: Iterable[tuple[Any, str]]) -> None:
        self.names = {(id(owner), name) for owner, name in names}
        self.gone: list[tuple[Any, str, Any, Any]] = []

    def begin(self) -> None:
        """Take them away, unless the script has put something over them."""
        for owner, name, before, ours in PATCHES:
            if (id(owner), name) in self.names and owner.__dict__.get(name) is ours:
                _put_or_take(owner, name, before)
                self.gone.append((owner, name, before, ours))

    def end(self) -> None:
        """Put them back, unless the script has put something in their place."""
        while self.gone:
            owner, name, before, ours = self.gone.pop()
            if owner.__dict__.get(name) is before:
                setattr(owner, name, ours)


class OnObjects:
    """Wrappers on objects of a library's that come and go; they, too, may leave for a while."""

    def __init__(self) -> None:
        self.known: list[tuple[weakref.ref[Any], str, Any, Any]] = []
        self.is_away = False

    def put(self, owner: Any, name: str, ours: Any) -> None:
        """Give an object something of ours under a name, now or when they come back."""
        self.known = [one for one in self.known if one[0]() is not None]
        self.known.append((weakref.ref(owner), name, owner.__dict__.get(name), ours))
        if not self.is_away:
            setattr(owner, name, ours)

    def begin(self) -> None:
        """Take them away."""
        self.is_away = True
        for reference, name, before, ours in self.known:
            if (owner := reference()) is not None and owner.__dict__.get(name) is ours:
                _put_or_take(owner, name, before)

    def end(self) -> None:
        """Put them back."""
        self.is_away = False
        for reference, name, before, ours in self.known:
            if (owner := reference()) is not None and owner.__dict__.get(name) is before:
                setattr(owner, name, ours)


def _put_or_take(owner: Any, name: str, before: Any) -> None:
    """Give a name of a class or a module what it had; None for nothing."""
    if before is None:
        delattr(owner, name)
    else:
        setattr(owner, name, before)


def hidden(function: Function) -> Function:
    """Give a function of ours a file whose frames are nobody's."""
    code = function.__code__.replace(co_filename=NOT_OURS)
    function.__code__ = code
    return function


def drop_hidden(error: BaseException) -> None:
    """Take the hidden frames at its beginning out of the traceback of an exception."""
    link = error.__traceback__
    while link is not None and link.tb_frame.f_code.co_filename == NOT_OURS:
        link = link.tb_next
    error.__traceback__ = link


def without_dynamo(torch: Any, act: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that does `act` while dynamo compiles no frame.

    Where a compiled function breaks off, dynamo looks at every frame that Python runs, ours too.
    """
    try:
        switch = torch._C._dynamo.eval_frame.set_eval_frame
    except AttributeError:
        return act

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        callback = switch(None)
        try:
            return act(*args, **kwargs)
        finally:
            switch(callback)

    pass_as_torchs(torch, wrapper)
    return wrapper


def pass_as_torchs(torch: Any, *functions: Any) -> None:
    """Give functions of ours that take tensors torch's file name, so that dynamo passes over them.

    Where a compiled function breaks off and continues in Python, dynamo compiles each frame that
    holds a tensor and is not torch's own.
    """
    for function in functions:
        function.__code__ = function.__code__.replace(co_filename=torch.autograd.__file__)


def drop_frame(error: BaseException) -> None:
    """Take the caller out of the traceback of an exception that it is about to raise again.

    A wrapper has torch's file name, so its entry would show an unrelated line of torch's. In Python
    3.10 the entry stays.
    """
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next
