"""A window of a few steady steps under torch's profiler, or under a tool of the device's maker.

It exists only where the user asked for it (STEPTIME_PROFILE), because a profiler prints and holds
on to tensors. The window begins and ends where updates end, and its updates are marked as
disturbed. A window in which the script compiled, evaluated or saved is discarded and tried again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from json import dumps
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ...record import kinds
from ...record.files import rank_file
from ..hooks.patching import replace
from ..timeline.cycle import Cycle

if TYPE_CHECKING:
    from ..timeline.journal import Journal
    from ..timeline.recorder import Recorder
    from ..watchers.debug_switches import SwitchWatcher

NUM_STEPS = 3
"""Enough to see whether steps are alike; a trace of many steps opens slowly."""

MAX_TRIES = 3
"""Windows that may contain something other than steps; the last one is kept even so."""

MAX_WAIT = 20
"""How long to wait for a step with nothing else in it; a script may save after each step."""

WAITING, WARMING, ACTIVE, OVER = range(4)


class Wish:
    """What the parent asks for: a tool, the first step it may record, and whether with stacks."""

    def __init__(self, text: str, *, num_steps: int = NUM_STEPS, suffix: str = "") -> None:
        self.tool, first, stacks = text.split(",")
        self.first_step = int(first)
        self.with_stacks = stacks == "stacks"
        self.num_steps = num_steps
        self.suffix = suffix  # of the file's name, behind that of the rank


class TorchProfiler:
    """The profiler of torch, and the file that its trace goes to."""

    can_repeat = True

    def __init__(self, torch: Any, *, with_stacks: bool) -> None:
        self.torch = torch
        self.with_stacks = with_stacks
        self.profiler: Any = None
        self.step: Any = None
        self.is_begun = False

    def why_not(self) -> str | None:
        """Return a reason not to begin now."""
        is_on = self.torch._C._autograd._profiler_enabled()
        return "own_profiler" if is_on else None

    def warm_up(self) -> None:
        """Get ready: tracing on a device takes a while to start."""
        kinds = self.torch.profiler.ProfilerActivity
        activities = [kinds.CPU]
        if self.torch.cuda.is_initialized():
            activities.append(kinds.CUDA)
        self.profiler = self.torch.profiler._KinetoProfile(
            activities=activities, record_shapes=True, with_stack=self.with_stacks
        )
        self.profiler.prepare_trace()

    def begin(self) -> None:
        """Record operators from here on."""
        self.is_begun = True
        self.profiler.start_trace()

    def begin_step(self, number: int) -> None:
        """Begin a step, under the name by which readers of such traces find steps."""
        self.step = self.torch.autograd.profiler.record_function(f"ProfilerStep#{number}")
        self.step.__enter__()

    def end_step(self) -> None:
        """A step ended."""
        step, self.step = self.step, None
        if step is not None:
            step.__exit__(None, None, None)

    def end(self, path: str | None) -> str | None:
        """Stop recording; return the file's name if the trace is kept."""
        self.end_step()
        profiler, self.profiler = self.profiler, None
        self.is_begun = False
        profiler.stop_trace()
        if path is None:
            return None
        path += ".pt.trace.json"
        profiler.export_chrome_trace(path)
        return os.path.basename(path) if os.path.isfile(path) else None

    def drop(self) -> None:
        """End it in whatever state it is; one that is only ready must begin before it can end."""
        if self.profiler is not None:
            if not self.is_begun:
                self.begin()
            self.end(None)


class DeviceRange:
    """Marks the steps as the range that the device maker's profiler waits for (`nsys profile`)."""

    can_repeat = False  # the tool collects once

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.is_begun = False

    def why_not(self) -> str | None:
        """Return a reason not to begin now: such a range needs a device."""
        return None if self.torch.cuda.is_initialized() else "no_device"

    def warm_up(self) -> None:
        """Do nothing: the tool runs already."""

    def begin(self) -> None:
        """Let the tool collect from here on."""
        self.torch.cuda.synchronize()  # what was queued before belongs to other steps
        self.is_begun = True
        self.torch.cuda.profiler.start()

    def begin_step(self, number: int) -> None:
        """Open a range with the step's name."""
        self.torch.cuda.nvtx.range_push(f"ProfilerStep#{number}")

    def end_step(self) -> None:
        """A step ended."""
        self.torch.cuda.nvtx.range_pop()

    def end(self, path: str | None) -> str | None:
        """Stop the tool from collecting; it names its file itself."""
        self.is_begun = False
        self.torch.cuda.synchronize()
        self.torch.cuda.profiler.stop()
        return None

    def drop(self) -> None:
        """Stop the tool if it collects."""
        if self.is_begun:
            self.end(None)


class ProfileWindow:
    """The window of one process; it takes the end of each update until it is over."""

    def __init__(self, torch: Any, recorder: Recorder, wish: Wish, switches: SwitchWatcher) -> None:
        self.recorder = recorder
        self.switches = switches
        self.wish = wish
        is_torchs = wish.tool == "torch"
        self.tool: TorchProfiler | DeviceRange = (
            TorchProfiler(torch, with_stacks=wish.with_stacks) if is_torchs else DeviceRange(torch)
        )
        self.cycle = Cycle(tells_loops=True)
        self.state = WAITING
        self.num_seen = self.num_spans = self.first = 0
        self.num_done = self.num_tries = 0
        self.is_mixed = False  # contains an evaluation, say, or a compilation
        self.began_ns = 0
        self.missing: str | None = None
        self.facts: dict[str, Any] | None = None
        self.is_busy = False

    @property
    def is_over(self) -> bool:
        """Whether the window has done its work."""
        return self.state == OVER

    @property
    def is_recording(self) -> bool:
        """Whether the profiler records, or gets ready for it."""
        return self.state in (WARMING, ACTIVE)

    def end_update(self, journal: Journal, optimizer: int, *, may_begin: bool) -> None:
        """Take the end of an update: begin, continue or end the window."""
        if self.state == OVER:
            return
        try:
            if self.cycle.add(optimizer):
                self._end_step(journal, may_begin=may_begin)
        except BaseException:
            self.recorder.fail("profile")
            self.give_up("failed")
        if self.is_recording:
            journal.disturb()
        self.switches.is_profiled = self.state == ACTIVE

    def pop_line(self) -> str | None:
        """Return the line with the result, once."""
        facts, self.facts = self.facts, None
        return None if facts is None else dumps(facts) + "\n"

    def finish(self) -> None:
        """Keep what an open window has seen: the process ends."""
        if self.state == OVER:
            return
        try:
            if self.state == ACTIVE and self.num_done:
                self._keep()
            else:
                self.give_up("too_few_updates" if self.state == WAITING else "ended_in_window")
        except BaseException:
            self.recorder.fail("profile")
            self.give_up("failed")

    def give_up(self, missing: str) -> None:
        """End without a profile: keep the reason and end a running profiler."""
        if self.state == OVER:
            return
        self.state = OVER
        self.switches.is_profiled = False
        self._tell({"missing": missing})
        try:
            self.tool.drop()
        except BaseException:
            self.recorder.fail("profile")

    # -- from step to step

    def _end_step(self, journal: Journal, *, may_begin: bool) -> None:
        cycle = self.cycle
        self.num_seen = (cycle.num - cycle.anchor) // max(1, cycle.period)
        is_plain = journal.num_spans == self.num_spans
        self.num_spans = journal.num_spans
        is_late = self.num_seen >= self.wish.first_step + MAX_WAIT
        if self.state == ACTIVE:
            self._go_on(journal, is_plain=is_plain)
        elif self.state == WARMING:
            if is_plain or is_late:
                self._begin()
        elif self.num_seen >= self.wish.first_step - 1 and may_begin and (is_plain or is_late):
            self._warm_up()

    def _warm_up(self) -> None:
        missing = self.tool.why_not()
        if missing is not None:
            self.give_up(missing)
            return
        self.is_busy = True
        try:
            self.tool.warm_up()
        finally:
            self.is_busy = False
        self.state = WARMING

    def _begin(self) -> None:
        self.tool.begin()
        self.state = ACTIVE
        self.num_done = 0
        self.is_mixed = False
        self.first = self.num_seen
        self.began_ns = perf_counter_ns()
        self.tool.begin_step(self.num_seen)

    def _go_on(self, journal: Journal, *, is_plain: bool) -> None:
        self.tool.end_step()
        self.num_done += 1
        self.is_mixed |= not is_plain
        if not is_plain and self.tool.can_repeat and self.num_tries + 1 < MAX_TRIES:
            self.num_tries += 1
            self.tool.end(None)
            self.state = WAITING
        elif self.num_done < self.wish.num_steps:
            self.tool.begin_step(self.num_seen)
            return
        else:
            self._keep()
        journal.disturb()  # the time it took to write belongs to no step

    def _keep(self) -> None:
        ended_ns, zero_ns = perf_counter_ns(), self.recorder.zero_ns
        stem = os.path.splitext(os.path.basename(self.recorder.path or rank_file(0)))[0]
        path = os.path.join(self.recorder.run, "profile", stem + self.wish.suffix)
        file = self.tool.end(path)
        self.state = OVER
        if file is None and self.tool.can_repeat:
            self._tell({"missing": "not_written"})
            return
        self._tell(
            {
                "first": self.first,
                "file": file,
                "steps": self.num_done,
                "tries": self.num_tries,
                "is_cut": self.num_done < self.wish.num_steps,
                "is_mixed": self.is_mixed,
                "t": [self.began_ns - zero_ns, ended_ns - zero_ns],
                "end_ns": perf_counter_ns() - ended_ns,
            }
        )

    def _tell(self, facts: dict[str, Any]) -> None:
        head = {"k": kinds.WINDOW, "tool": self.wish.tool, "n": self.num_seen}
        self.facts = head | facts


def make_profile_windows(
    torch: Any, recorder: Recorder, text: str, switches: SwitchWatcher
) -> Callable[[], ProfileWindow]:
    """Return what makes this process's window once it steps; a profiler of the script's ends it."""
    wish = Wish(text)
    windows: list[ProfileWindow] = []
    is_taken: list[bool] = []

    def yield_to_script() -> None:
        if any(window.is_busy for window in windows):
            return  # this is our own profiler being made
        is_taken.append(True)
        for window in windows:
            window.give_up("own_profiler")

    if wish.tool == "torch":
        watch_for_profilers(torch, yield_to_script, recorder)

    def make() -> ProfileWindow:
        window = ProfileWindow(torch, recorder, wish, switches)
        if is_taken:
            window.give_up("own_profiler")
        windows[:] = [window]
        return window

    return make


def watch_for_profilers(
    torch: Any, act: Callable[[], None], recorder: Recorder
) -> Callable[[], None]:
    """Call `act` before the script makes a profiler of torch's; return what ends that."""
    owners = (torch.profiler._KinetoProfile, torch.autograd.profiler.profile)
    undone = [_tell_before(owner, act, recorder) for owner in owners]

    def undo() -> None:
        for one in undone:
            one()

    return undo


def _tell_before(owner: Any, act: Callable[[], None], recorder: Recorder) -> Callable[[], None]:
    """Call `act` before each object of a class is made; return what puts back what was there."""
    original = owner.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            act()
        except BaseException:
            recorder.fail("profile")
        original(self, *args, **kwargs)

    replace(owner, "__init__", __init__)

    def undo() -> None:
        if owner.__dict__.get("__init__") is __init__:
            owner.__init__ = original

    return undo
