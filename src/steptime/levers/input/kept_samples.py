"""The samples of a data set, kept up to their first random draw, for a process and its workers.

This is no lever, as it has no `LEVER`. What a sample draws, it mostly draws in a chain of
transforms (an object with a list of `transforms`): what such a chain got, as far as nothing was
drawn, is kept, and later epochs begin there. Nothing is known of the classes: that the same comes
out, and the same is drawn, is tried with some samples in a forked copy, and later with one in 64.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any

from ..pictures.pixel_store import PixelStore
from ..pictures.transforms import settings_of
from ..tools.forked_copy import do_all_apart
from ..tools.generators import Generators, keep_random_states
from .datasets import (
    EVERY,
    IN_MEMORY,
    NUM_FIRST,
    attributes_of,
    can_be_key,
    chain_of,
    innermost,
    samples_of,
    spread,
)
from .preloaded import FAILS, DataCondition, NotKeptError, read_apart
from .sample_bytes import Placeholder, pack, unpack

NUM_TRIED = 8
"""Samples that are read several times before any is kept."""

TRY_S, PASS_S = 20.0, 0.25
"""For all readings of these samples, and after which one pass reads no more [s]."""

AHEAD_S, MOST_AHEAD = 30.0, 64
"""For how long a trial reads ahead, and how many batches [s]."""

MAX_OBJECTS, MOST_CHAINS = 500, 16
KEY_BYTES = 16


class SampleReading:
    """One reading of a sample: what its chains got and gave.

    `is_same` is false once something was drawn before the place where a chain is cut.
    """

    def __init__(self, kept: KeptSamples, *, is_checked: bool) -> None:
        self.kept, self.is_checked = kept, is_checked
        self.heads: list[tuple[int, bytes]] = []
        self.given: list[Any] = []
        self.is_same = True
        self.last = kept.generators.states() if is_checked else b""

    def check(self) -> None:
        """Note whether something was drawn since the last look."""
        self.is_same = self.is_same and (
            not self.is_checked or self.kept.generators.states() == self.last
        )

    def steps_for(self, number: int) -> list[Any]:
        """Return the steps of a chain, with ours between them."""
        steps, cut = self.kept.steps[number], self.kept.cuts[number]

        def head(*values: Any) -> Any:
            self.check()
            values = run(steps[:cut], values)
            self.check()
            try:
                self.heads.append((number, pack(values)))
            except TypeError:
                self.is_same = False
            return as_returned(values)

        def end(*values: Any) -> Any:
            self.last = self.kept.generators.states() if self.is_checked else b""
            self.given += values
            return as_returned(values)

        return [head, *steps[cut:], end]

    def read(self, index: int) -> tuple[Any, bytes | None]:
        """Return a sample, and what is kept of it; None where it cannot be kept."""
        with self.kept.chains_changed(self.steps_for):
            sample = self.kept.dataset[index]
        self.check()
        try:
            slots = list(range(len(self.given)))
            data = pack((marked(sample, self.given, slots), self.heads))
        except TypeError:
            return sample, None
        return sample, data if self.is_same and not slots else None


class KeptSamples:
    """Reads a data set's samples once, and what they draw each time.

    Args:
        torch: the module.
        dataset: map-style.
    """

    def __init__(self, torch: Any, dataset: Any) -> None:
        self.torch, self.is_off = torch, False
        self.reference = weakref.ref(dataset)  # what is kept goes when the data set does
        self.attributes = attributes_of(dataset)
        self.generators = Generators(torch, chain_of(dataset))
        self.chains: list[Any] = []
        self.cuts: list[int] = []
        self.note_steps()
        self.num_read = self.num_hits = 0

    @property
    def dataset(self) -> Any:
        """The data set, while it lives."""
        return self.reference()

    def begin(self, make_store: Callable[[int, int], Any]) -> None:
        """Try some samples, and keep what is read from now on.

        Args:
            make_store: returns where bytes are kept, from how many there are and what one takes.

        Raises:
            NotKeptError: samples differ, or draw where no chain of transforms does.
        """
        found = read_apart(self.torch, self.try_some, limit_s=TRY_S)
        if found["error"]:
            raise NotKeptError(found["error"])
        if found["cuts"]:
            self.chains, self.cuts = find_chains(self.dataset), found["cuts"]
            self.note_steps()
        self.store: PixelStore = make_store(len(self.dataset), found["num_bytes"])

    def note_steps(self) -> None:
        """Note the chains' steps, and how they are set."""
        self.steps = [list(one.transforms) for one in self.chains]
        self.settings = [settings_of(steps) for steps in self.steps]

    @contextmanager
    def chains_changed(self, steps_for: Callable[[int], list[Any]]) -> Any:
        """Give the chains other steps within the context."""
        before = [one.transforms for one in self.chains]
        for number, one in enumerate(self.chains):
            one.transforms = steps_for(number)
        try:
            yield
        finally:
            for one, steps in zip(self.chains, before, strict=True):
                one.transforms = steps

    def samples(self, indices: Sequence[Any]) -> list[Any]:
        """Return samples, each as an object of its own."""
        if self.is_off or not self.is_current():
            return samples_of(self.dataset, indices)
        return [self.sample(index) for index in indices]

    def is_current(self) -> bool:
        """Return whether the script has left the data set as it was; if not, never again."""
        is_same = self.attributes == attributes_of(self.dataset) and all(
            list(map(id, one.transforms)) == list(map(id, steps)) and settings_of(steps) == settings
            for one, steps, settings in zip(self.chains, self.steps, self.settings, strict=True)
        )
        self.is_off = self.is_off or not is_same
        return is_same

    def sample(self, index: Any) -> Any:
        """Return one sample."""
        if self.is_off or type(index) is not int or index < 0:
            return self.dataset[index]
        key = index.to_bytes(KEY_BYTES, "little")
        data = self.store.get(key)
        if data is not None:
            self.num_hits += 1
            if self.num_hits > NUM_FIRST and self.num_hits % EVERY:
                return self.finish(data)
        self.num_read += 1
        is_checked = data is not None or self.num_read <= NUM_FIRST
        sample, read = SampleReading(self, is_checked=is_checked).read(index)
        if read is None or (data is not None and bytes(data) != read):
            self.is_off = True
            self.store.close()
        elif data is None:
            self.store.put(key, read)
        return sample

    def finish(self, data: Any) -> Any:
        """Return a sample from what is kept: its chains go on where they were cut."""
        sample, heads = unpack(data)
        given: list[Any] = []
        for number, head in heads:
            given += run(self.steps[number][self.cuts[number] :], unpack(head))
        return filled(sample, given) if heads else sample

    def read_ahead(self, indices: Sequence[int]) -> None:
        """Keep some samples before they are asked for, in a forked copy for each core."""
        num, until = len(os.sched_getaffinity(0)), perf_counter() + AHEAD_S

        def read_part(first: int) -> dict[str, Any]:
            self.torch.set_num_threads(1)
            for index in indices[first::num]:
                if self.is_off or perf_counter() > until:
                    break
                self.sample(index)
            return {"is_off": self.is_off}

        do_all_apart([partial(read_part, first) for first in range(num)], limit_s=2 * AHEAD_S)

    # -- in a forked copy

    def try_some(self) -> dict[str, Any]:
        """Read some samples again and again: return where they are cut, and what they take."""
        subset = self.torch.utils.data.Subset
        whole = [one for one in chain_of(self.dataset) if hasattr(one, "__getitems__")]
        if not all(isinstance(one, subset) for one in whole):
            return {"error": "The data set reads a batch at once."}
        indices, data = spread(len(self.dataset), NUM_TRIED), list[bytes]()
        self.dataset[indices[0]]  # the first reading imports, warns, and opens what stays open
        condition = DataCondition(self.dataset, self.generators, has_files=True)
        first, began = self.generators.states(), perf_counter()
        for index in indices:
            data.append(pack((self.dataset[index], [])))
            if perf_counter() - began > PASS_S and len(data) > 1:
                break
        read_s, indices = perf_counter() - began, indices[: len(data)]
        again = [pack((self.dataset[index], [])) for index in indices]
        rest_s = 0.0
        if data != again or first != self.generators.states():
            self.chains = find_chains(self.dataset)
            self.note_steps()
            self.cuts = self.find_cuts(indices)
            data, rest_s = self.try_cuts(indices)
        condition.put_back()  # to draw is no change
        if not condition.is_as_before():
            return {"error": "Reading a sample changes something."}
        return {
            "error": "",
            "cuts": self.cuts,
            "num_bytes": max(map(len, data)),
            "saved_s": max(0.0, read_s - rest_s) / len(data),
        }

    def find_cuts(self, indices: Sequence[int]) -> list[int]:
        """Return how many steps of each chain draw nothing, whatever the sample is."""
        cuts = [len(steps) for steps in self.steps]

        def steps_for(number: int) -> list[Any]:
            def watched(place: int, step: Any) -> Any:
                def act(*values: Any) -> Any:
                    before = self.generators.states()
                    values = step(*values)
                    if before != self.generators.states():
                        cuts[number] = min(cuts[number], place)
                    return values

                return act

            return [watched(place, step) for place, step in enumerate(self.steps[number])]

        with self.chains_changed(steps_for):
            for index in indices:
                self.dataset[index]
        return cuts

    def try_cuts(self, indices: Sequence[int]) -> tuple[list[bytes], float]:
        """Return what is kept of some samples, and the time that the rest takes [s].

        Raises:
            NotKeptError: what is kept gives other samples, or draws otherwise.
        """
        kept, rest_s = [], 0.0
        for index in indices:
            take_back, found = self.generators.keep(), []
            plain = pack(self.dataset[index]), self.generators.states()
            take_back()
            sample, data = SampleReading(self, is_checked=True).read(index)
            if data is None:
                raise NotKeptError("Samples draw where no chain of transforms does.")
            found.append((pack(sample), self.generators.states()))
            take_back()
            began = perf_counter()
            sample = self.finish(data)
            rest_s += perf_counter() - began
            found.append((pack(sample), self.generators.states()))
            if found != [plain, plain]:
                raise NotKeptError("What is kept gives another sample, or draws otherwise.")
            kept.append(data)
        return kept, rest_s


class Keeping:
    """The data sets whose samples are kept.

    Args:
        torch: the module.
        limit_bytes: what all samples may take.
        is_on_disk: in a file instead of in memory.
        is_ahead: samples are read before they are asked for, in a trial.
    """

    def __init__(self, torch: Any, limit_bytes: int, *, is_on_disk: bool, is_ahead: bool) -> None:
        self.torch, self.limit_bytes = torch, limit_bytes
        self.is_on_disk, self.is_ahead = is_on_disk, is_ahead
        self.known: weakref.WeakKeyDictionary[Any, KeptSamples | None] = weakref.WeakKeyDictionary()

    def find(self, dataset: Any, batches: Any = None) -> KeptSamples | None:
        """Return the samples of a data set; a trial reads ahead what comes."""
        if type(innermost(dataset)).__name__ in IN_MEMORY or not can_be_key(dataset):
            return None
        is_here = self.torch.utils.data.get_worker_info() is None
        if dataset not in self.known and is_here and hasattr(dataset, "__len__") and len(dataset):
            try:
                kept = KeptSamples(self.torch, dataset)
                kept.begin(self.make_store)
                self.known[dataset] = kept
                if self.is_ahead and self.torch.is_grad_enabled():
                    kept.read_ahead(range(len(dataset)) if batches is None else batches())
            except (NotKeptError, *FAILS):
                self.known[dataset] = None
        found = self.known.get(dataset)
        return None if found is None or found.is_off else found

    def make_store(self, num_samples: int, sample_bytes: int) -> PixelStore:
        """Return room for samples of a data set."""
        others = sum(one.store.num_bytes for one in self.known.values() if one)
        num_bytes = min(self.limit_bytes - others, 2 * num_samples * sample_bytes)
        if num_bytes <= sample_bytes:
            raise NotKeptError("There is no room left.")
        return PixelStore(num_bytes, is_on_disk=self.is_on_disk, num_entries=2 * num_samples)


def coming(torch: Any, loader: Any) -> list[int]:
    """Return which samples the iterator that is made next asks for; all generators stay."""
    if not type(loader.sampler).__module__.startswith(torch.utils.data.__name__):
        return list(range(len(loader.dataset)))  # it may draw, and count what it gives
    put_back = keep_random_states(torch)
    own = filter(None, (loader.generator, getattr(loader.sampler, "generator", None)))
    states = [(one, one.get_state()) for one in own]
    try:
        torch.empty((), dtype=torch.int64).random_(generator=loader.generator)  # as its iterator
        return [int(it) for some in islice(loader.batch_sampler, MOST_AHEAD) for it in some]
    finally:
        put_back()
        for one, state in states:
            one.set_state(state)


def find_chains(dataset: Any) -> list[Any]:
    """Return the objects with a list of transforms that a data set holds."""
    found, seen, waiting = [], set[int](), list(chain_of(dataset))
    while waiting and len(seen) < MAX_OBJECTS:
        one = waiting.pop(0)
        is_list = type(one) in (list, tuple) and len(one) <= MOST_CHAINS
        own: dict[str, Any] = getattr(one, "__dict__", {})
        is_object = type(own) is dict and own and not isinstance(one, type)
        if id(one) in seen or not (is_list or is_object):
            continue
        seen.add(id(one))
        if is_list:
            waiting += one
            continue
        steps = own.get("transforms")
        if type(steps) in (list, tuple) and steps and all(map(callable, steps)):
            found.append(one)
            continue
        waiting += own.values()
    return found


def run(steps: Iterable[Any], values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what steps make of values, one after the other, as a chain does."""
    for step in steps:
        made = step(*values)
        values = made if len(values) > 1 and isinstance(made, tuple) else (made,)
    return values


def as_returned(values: tuple[Any, ...]) -> Any:
    """Return what a step returns."""
    return values if len(values) > 1 else values[0]


def marked(sample: Any, given: list[Any], slots: list[int]) -> Any:
    """Return a sample with slots in the place of what chains gave; each is taken out of `slots`."""
    for number in slots:
        if sample is given[number]:
            slots.remove(number)
            return Placeholder(number)
    if type(sample) in (tuple, list):
        return type(sample)([marked(one, given, slots) for one in sample])
    if type(sample) is dict:
        return {key: marked(one, given, slots) for key, one in sample.items()}
    return sample


def filled(sample: Any, given: list[Any]) -> Any:
    """Return a sample with what chains gave in the place of slots."""
    if type(sample) is Placeholder:
        return given[sample.number]
    if type(sample) in (tuple, list):
        return type(sample)([filled(one, given) for one in sample])
    if type(sample) is dict:
        return {key: filled(one, given) for key, one in sample.items()}
    return sample
