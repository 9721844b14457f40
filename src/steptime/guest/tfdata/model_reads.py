"""Reads the model that tf.data itself keeps of each running iterator, a few times a second.

It holds, for each node of the pipeline, the elements it made and the time it worked, and the gaps
between the consumer's calls: what the step itself took. Reading it changes nothing in it. The reads
end once enough is known; each line is one read of one iterator.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable
from json import dumps
from time import perf_counter
from typing import Any, NamedTuple

from ...record import kinds
from ...record.files import tf_data_file
from ..timeline.recorder import append

READ_EVERY_S = 0.2
ENOUGH_S, ENOUGH_BATCHES = 3.0, 100
LONG_ENOUGH_S, FEW_BATCHES = 60.0, 5
"""Where steps are long, a minute and a few batches have to do."""


class Reading(NamedTuple):
    """What tf.data says at one moment."""

    time_s: float
    num_batches: int
    nodes: list[list[Any]]
    output: int
    gaps_us: list[int]


class Seen:
    """One iterator of the script's; its resource lives on until it was read a last time."""

    def __init__(self, iterator: Any, name: int, number: int, now: float) -> None:
        self.iterator = weakref.ref(iterator)
        self.resource = iterator._iterator_resource
        self.name = name
        self.number = number  # of its pipeline
        self.last_s, self.last_batches = now, 0
        self.has_begun = False


class ModelReads:
    """The reads of one process.

    Args:
        run: the run's folder.
        read_model: returns tf.data's model of an iterator by its resource.
        clock: [s].
    """

    def __init__(
        self,
        run: str,
        read_model: Callable[[Any], Any],
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.path = os.path.join(run, tf_data_file(os.getpid()))
        self.read_model = read_model
        self.clock = clock
        self.seen: list[Seen] = []
        self.num_seen = 0
        self.chains: dict[str, int] = {}
        self.known: dict[int, tuple[float, int]] = {}  # seconds and batches, by pipeline
        self.is_over = threading.Event()
        self.thread: threading.Thread | None = None

    def see(self, iterator: Any, chain: list[dict[str, Any]]) -> None:
        """Begin to read an iterator that was just made from a pipeline."""
        if self.is_over.is_set():
            return
        text = dumps(chain)
        number = self.chains.get(text)
        if number is None:
            number = self.chains[text] = len(self.chains) + 1
            self._write({"k": kinds.PIPELINE, "id": number, "chain": chain})
        self.num_seen += 1
        self.seen.append(Seen(iterator, self.num_seen, number, self.clock()))
        if self.thread is None:
            self.thread = threading.Thread(target=self._watch, daemon=True, name="steptime-tfdata")
            atexit.register(self.stop)
            self.thread.start()

    def stop(self) -> None:
        """Read a last time; the process ends."""
        self.is_over.set()
        if self.thread is not None and self.thread.is_alive():
            self.thread.join(timeout=5.0)

    def _watch(self) -> None:
        while not self.is_over.wait(READ_EVERY_S):
            self.read_all()
        self.read_all()

    def read_all(self) -> None:
        """Read each iterator; those that the script has dropped are then released."""
        for one in tuple(self.seen):
            is_last = one.iterator() is None
            try:
                self._read(one)
            except Exception as error:
                self._write({"k": kinds.UNREAD, "id": one.number, "error": type(error).__name__})
                is_last = True
            if is_last:
                self.seen.remove(one)
        if not self.is_over.is_set() and any(map(self._is_enough, self.known.values())):
            self.is_over.set()
            self.seen.clear()
            self._write({"k": kinds.ENOUGH})

    def _read(self, one: Seen) -> None:
        found = take(self.read_model(one.resource), self.clock())
        new = found.num_batches - one.last_batches
        if new <= 0:
            return
        # Tracing and compiling come before the first batches: their interval tells nothing.
        seconds = found.time_s - one.last_s if one.has_begun else None
        known_s, known = self.known.get(one.number, (0.0, 0))
        self.known[one.number] = (known_s + (seconds or 0.0), known + new)
        self._write(
            {
                "k": kinds.PIPELINE_MODEL,
                "id": one.number,
                "iterator": one.name,
                "batches": new,
                "seconds": seconds,
                "output": found.output,
                "nodes": found.nodes,
                "gaps_us": found.gaps_us[-new:],
            }
        )
        one.has_begun = True
        one.last_s, one.last_batches = found.time_s, found.num_batches

    def _is_enough(self, known: tuple[float, int]) -> bool:
        seconds, batches = known
        return (seconds >= ENOUGH_S and batches >= ENOUGH_BATCHES) or (
            seconds >= LONG_ENOUGH_S and batches >= FEW_BATCHES
        )

    def _write(self, line: dict[str, Any]) -> None:
        if not os.path.exists(self.path):
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
        append(self.path, dumps(line) + "\n")


def take(model: Any, time_s: float) -> Reading:
    """Return what a model says; a node is its id, name, elements, time [ns], bytes, threads.

    The last three are the number of parallel calls (None: one), whether tf.data tunes it, and the
    ids of the inputs.
    """
    nodes = []
    for key, node in sorted(model.nodes.items()):
        parallel = [one for one in node.parameters if one.name == "parallelism"]
        nodes.append(
            [
                int(key),
                str(node.name),
                int(node.num_elements),
                int(node.processing_time),
                int(node.bytes_produced),
                _in_force(parallel[0]) if parallel else None,
                bool(parallel[0].tunable) if parallel else False,
                [int(i) for i in node.inputs],
            ]
        )
    output = int(model.output)
    batches = next(
        (int(node.num_elements) for key, node in model.nodes.items() if key == output), 0
    )
    return Reading(time_s, batches, nodes, output, [int(gap) for gap in model.gap_times])


def _in_force(parameter: Any) -> float:
    """Return the value that is used now; `value` is what the tuning tries in its model."""
    return float(getattr(parameter, "state_value", 0.0) or parameter.value)
