"""What a journal calls beside its notes, as far as it needs to know of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from .thread_timeline import ThreadTimeline


class SpanPlaces(Protocol):
    """Keeps where in the user's code spans began; `sites/site_book.py` has it."""

    def walk(self, kind: int, frame: Any) -> None:
        """Note that a span begins in this frame."""


class SeenLosses(Protocol):
    """Keeps the losses of a thread's updates; `health/loss_watch.py` has it."""

    @property
    def bad_value(self) -> str | None:
        """Return what was not finite since the last update, if anything: `loss` for example."""

    @property
    def num_ended(self) -> int:
        """Return how many updates have ended, or backward calls where no optimizer steps."""

    def number_of(self, optimizer: int) -> int:
        """Return the number, from 1, of an update of this optimizer that ends now."""

    def end_update(self, optimizer: int, skipped: int | None) -> None:
        """Take the end of an update."""

    @property
    def is_idle(self) -> bool:
        """Return whether no bad number is followed."""

    def skip(self, num: int) -> None:
        """Pass over updates that nothing is known of."""

    def see_loss(self, args: Any) -> None:
        """Take the tensor that the script goes backward from, where it said nothing else."""

    def see_other_loss(self, args: Any, *, inside_step: bool) -> None:
        """Take any other."""

    def see_grad(self, args: Any) -> None:
        """Take what `autograd.grad` derives."""

    def see_scaled(self, outputs: Any, scaled: Any) -> None:
        """Take a loss before it is scaled."""

    def see_norm(self, norm: Any) -> None:
        """Take the norm that clipping returned."""

    def see_read(self, tensor: Any, value: Any) -> None:
        """Take what the script read from a device."""

    def see_bad_read(self, tensor: Any, value: Any) -> None:
        """Take a bad number that the script read."""


class WalkedWindows(Protocol):
    """Walks frames at the markers of a few updates; `sites/site_windows.py` has it.

    `shift` is the time [ns] that the walks of this window have taken so far.
    """

    shift: int

    def mark(self, act: Callable[[ThreadTimeline], None], now: int) -> None:
        """Walk the frames at a marker."""

    def count(self, bucket: int) -> None:
        """Note a call that is counted but not timed."""

    def end_update(self, journal: Any, *, is_by_hand: bool) -> None:
        """Begin or end what the number of the next update calls for."""

    @property
    def is_idle(self) -> bool:
        """Return whether nothing is walked or profiled now, or is about to be."""

    def skip(self, num: int) -> None:
        """Pass over updates that nothing is known of."""

    def is_free(self, first: int, last: int) -> bool:
        """Return whether none of these updates is walked or profiled."""

    def is_still(self, first: int, last: int) -> bool:
        """Return whether none of these updates is walked, and no profiler records now."""


class CountedUpdates(Protocol):
    """Decides which updates are counted; `count/count_plan.py` has it."""

    def end_update(self, journal: Any, optimizer: int, sizes: list[int]) -> None:
        """Take the end of an update, and the sizes of its calls."""

    @property
    def is_idle(self) -> bool:
        """Return whether nothing is planned or waits to be written."""

    def skip(self, journal: Any, num: int) -> None:
        """Pass over updates that nothing is known of."""

    def is_clear(self, number: int, last: int) -> bool:
        """Return whether none of these updates is scouted or counted."""

    def pop_lines(self) -> list[str]:
        """Return the lines made since the last call."""

    def pop_last_lines(self, journal: Any) -> list[str]:
        """Return the last lines: the process ends."""


class WatchRests(Protocol):
    """Lets the watch rest between bursts of updates; `frameworks/torch/resting_watch.py` has it."""

    is_resting: bool

    @property
    def num_unwritten(self) -> int:
        """Return how many updates ended in this rest that the journal does not count yet."""

    def end_update(self, optimizer: int) -> None:
        """Take the end of a watched update; perhaps the watch rests from here on."""

    def wake(self) -> None:
        """End the rest."""

    def put_back(self) -> None:
        """Put the hooks back, and leave it at that: this is a forked child."""


class AskedUpdates(Protocol):
    """Answers a question that somebody asks meanwhile; `asked/question_watcher.py` has it."""

    def end_update(self, journal: Any, optimizer: int) -> None:
        """Take the end of an update: begin, continue or answer."""


def _nothing(*_: Any) -> None:
    """Make nothing: nobody wants it."""


class Makers(NamedTuple):
    """Makes what a journal has beside its notes, or None."""

    spans: Callable[[], SpanPlaces | None] = _nothing
    windows: Callable[[], WalkedWindows | None] = _nothing
    plan: Callable[[], CountedUpdates | None] = _nothing
    losses: Callable[[], SeenLosses | None] = _nothing
    resting: Callable[[Any], WatchRests | None] = _nothing


NO_MAKERS = Makers()
