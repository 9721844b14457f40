"""What the script does before its first step: imports, data sets, models, loading.

In: the outermost imports, which the entry of the guest times, and a few calls of torch's. Out: one
line `su` with the stretches that these name; what they leave is set-up. Between two calls that
build a model, time belongs to the model, and what comes before a loader is made belongs to its data
set. The first update ends it all. The wrappers stay, and pass through: a script may hold one of
them, and pickle finds it by its name.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from json import dumps
from threading import get_ident
from time import perf_counter_ns
from types import FrameType
from typing import Any, Protocol

from ...record import kinds
from ..hooks.patching import drop_frame, put, replace
from ..sites.frames import Frames
from ..timeline.recorder import Recorder

IMPORTS, DATA_SET, MODEL, LOADING, SETUP = "imports", "data_set", "model", "loading", "setup"

MIN_NS = 100_000
"""Shorter stretches are set-up, for nobody looks for a tenth of a millisecond."""

MAX_ROWS = 1_000
"""A script that builds and loads in turn, a thousand times, has what is left as set-up."""

LAYERS = ("Linear", "Bilinear", "Embedding", "EmbeddingBag", "RNNBase", "LayerNorm")
"""Layers of torch's whose weights take long to draw; convolutions share one class."""

DATA_CALLS = (
    ("datasets.load", None, ("load_dataset", "load_from_disk")),
    ("datasets.arrow_dataset", "Dataset", ("map", "filter")),
)
"""Modules of Hugging Face's datasets, a class in them, and what of it makes a data set."""

Row = list[Any]
"""What, begin and end [ns on the process's clock], a module's name, file, line."""


class ImportTimes(Protocol):
    """The outermost imports so far: `inject/site/sitecustomize.py` has it."""

    began_ns: int
    rows: list[tuple[str, int, int, str | None, int | None]]

    def stop(self) -> None:
        """Time no more imports."""


class StartUp:
    """Sorts the time before the first step of one thread, the one that imported torch."""

    def __init__(
        self,
        recorder: Recorder,
        frames: Frames,
        imports: ImportTimes | None,
        clock: Callable[[], int] = perf_counter_ns,
    ) -> None:
        self.recorder = recorder
        self.frames = frames
        self.imports = imports
        self.clock = clock
        self.thread = get_ident()
        self.rows: list[Row] = []
        self.last = clock() if imports is None else imports.began_ns
        self.last_part = IMPORTS
        self.is_inside = False  # a call that is timed as a whole
        self.is_over = False

    def is_awake(self) -> bool:
        """Return whether a call now counts: not inside another one, nor in another thread."""
        return not (self.is_over or self.is_inside or get_ident() != self.thread)

    def see(self, part: str) -> None:
        """Take a call that continues a part, if the last one did so too."""
        self._book(part if self.last_part == part else SETUP, part, sys._getframe(1))

    def see_end(self, part: str) -> None:
        """Take a call before which a part must have been: a loader's, say."""
        self._book(part, part, sys._getframe(1))

    def _book(self, named: str, following: str, frame: FrameType | None) -> None:
        began, now = self.last, self.clock()
        self.last, self.last_part = now, following
        if named == SETUP:
            return
        if self.rows and self.rows[-1][0] == named and self.rows[-1][2] == began:
            self.rows[-1][2] = now  # a thousand small layers are one stretch
        elif len(self.rows) < MAX_ROWS:
            self.rows.append([named, began, now, "", *self._place(frame)])

    def _place(self, frame: FrameType | None) -> tuple[str | None, int | None]:
        """Return the line of the user's that calls, outside the constructors of its classes."""
        stack = self.frames.stack(frame)
        calling = [spot for spot in stack if spot.code.co_name != "__init__"] or list(stack)
        return (calling[-1].file, calling[-1].line) if calling else (None, None)

    def stop(self) -> list[Row]:
        """Take no more; return the stretches in order of time."""
        self.is_over = True
        found = [row for row in self.rows if row[2] - row[1] >= MIN_NS]
        if self.imports is not None:
            self.imports.stop()
            found += [
                [IMPORTS, began, ended, name, file, line]
                for name, began, ended, file, line in self.imports.rows
            ]
        return sorted(found, key=lambda row: row[1])


class StartUpWatcher:
    """Gives the recorder the line of the start, once, when an update has been made."""

    place = "start_up"

    def __init__(self, torch: Any, recorder: Recorder, start_up: StartUp) -> None:
        self.recorder = recorder
        self.start_up = start_up
        hook_start(torch, recorder, start_up)

    def reset(self) -> None:
        """Take nothing more: a forked child did not start by itself."""
        self.start_up.is_over = True

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Return the line, when it is due."""
        start_up = self.start_up
        if start_up.is_over or not self.recorder.num_updates:
            return ""
        rows, zero_ns = start_up.stop(), self.recorder.zero_ns
        for row in rows:
            row[1:3] = row[1] - zero_ns, row[2] - zero_ns
        return dumps({"k": kinds.START_UP, "rows": rows}) + "\n" if rows else ""


# -- the calls


def hook_start(torch: Any, recorder: Recorder, start_up: StartUp) -> None:
    """Watch the calls that build models, make loaders and load."""
    nn, data = torch.nn, torch.utils.data
    is_compiling = torch.compiler.is_dynamo_compiling

    def watch(owner: Any, name: str, make: Callable[..., Any], *args: Any) -> None:
        if name in vars(owner):
            wrapper = make(start_up, recorder, is_compiling, getattr(owner, name), *args)
            replace(owner, name, wrapper)

    watch(nn.Module, "__init__", _seen, MODEL, StartUp.see)
    watch(torch.optim.Optimizer, "__init__", _seen, MODEL, StartUp.see)
    for owner in (data.DataLoader, data.TensorDataset, data.Subset, data.ConcatDataset):
        watch(owner, "__init__", _seen, DATA_SET, StartUp.see_end)
    for owner in (nn.modules.conv._ConvNd, *(getattr(nn, name) for name in LAYERS)):
        watch(owner, "reset_parameters", _timed, MODEL)
    for name in ("apply", "_apply", "load_state_dict"):
        watch(nn.Module, name, _timed, MODEL)
    watch(torch.serialization, "load", _timed, LOADING)
    put(torch, "load", torch.serialization.load)
    watch(torch.distributed, "init_process_group", _timed, SETUP)


def hook_libraries(
    torch: Any,
    recorder: Recorder,
    start_up: StartUp,
    targets: dict[str, Callable[[Any], None]],
) -> None:
    """Watch the calls of libraries that make data sets, once something imports them."""
    is_compiling = torch.compiler.is_dynamo_compiling

    def hook(class_name: str | None, names: tuple[str, ...], module: Any) -> None:
        try:
            owner = module if class_name is None else getattr(module, class_name)
            for name in names:
                original = vars(owner)[name]
                replace(owner, name, _timed(start_up, recorder, is_compiling, original, DATA_SET))
        except BaseException:
            recorder.fail("start_up")

    for module_name, class_name, names in DATA_CALLS:
        targets[module_name] = functools.partial(hook, class_name, names)


def _seen(
    start_up: StartUp,
    recorder: Recorder,
    is_compiling: Callable[[], bool],
    original: Any,
    part: str,
    see: Callable[[StartUp, str], None],
) -> Any:
    """Return a wrapper that notes the beginning of a call."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(*args, **kwargs)
        try:
            try:
                if start_up.is_awake():
                    see(start_up, part)
            except BaseException:
                recorder.fail("start_up")
            return original(*args, **kwargs)
        except BaseException as error:
            drop_frame(error)
            raise

    return wrapper


def _timed(
    start_up: StartUp,
    recorder: Recorder,
    is_compiling: Callable[[], bool],
    original: Any,
    part: str,
) -> Any:
    """Return a wrapper that books a whole call to a part."""

    def begin() -> bool:
        """Begin the part, unless this is inside another; return whether it was begun."""
        if not start_up.is_awake():
            return False
        start_up.see(part)
        start_up.is_inside = True
        return True

    def end() -> None:
        start_up.is_inside = False
        start_up.see_end(part)

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(*args, **kwargs)
        try:
            is_begun = False
            try:
                is_begun = begin()
            except BaseException:
                recorder.fail("start_up")
            try:
                return original(*args, **kwargs)
            finally:
                try:
                    if is_begun:
                        end()
                except BaseException:
                    recorder.fail("start_up")
        except BaseException as error:
            drop_frame(error)
            raise

    return wrapper
