"""Exchange among ranks that ends with a message, and never hangs, where one of them is gone.

In: arrays to exchange. Out: what came, or a `RankLostError` that names the ranks whose processes
have ended, as far as they run on this machine. A rank that is gone closes its connections, which
the others see at once; one that only stays away is waited for up to a limit.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import psutil

from steptime.core.units import format_seconds
from steptime.errors import RankLostError

Array = np.ndarray[Any, Any]

_ASK_FOR_S = 1.0
"""A rank that is being killed takes part of a second to be seen as ended."""

_CLOCK_MOVES_S = 5.0
"""The start of a process is told from the clock, which may be set meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProcess:
    """Where a rank runs: its machine's name, with the space in which the process id holds."""

    machine: str
    pid: int
    started_unix_s: float


class RankWatch:
    """A group of ranks that exchange arrays; made on all of them at the same time."""

    def __init__(self, group: Any, *, num_ranks: int, timeout_s: float) -> None:
        self._timeout = timedelta(seconds=timeout_s)
        self._processes: tuple[RankProcess, ...] = ()
        self._lost: RankLostError | None = None
        self._num_exchanges = 0
        self.rank, self._group = 0, None
        if num_ranks > 1:
            self.rank, self._group = self._make_group(group, num_ranks)

    def _make_group(self, group: Any, num_ranks: int) -> tuple[int, Any]:
        import torch.distributed as dist

        if not dist.is_available() or not dist.is_initialized():
            raise ValueError(
                f"the partition has {num_ranks} parts, and torch.distributed is not initialized; "
                "start with torchrun and call init_process_group first"
            )
        size = dist.get_world_size(group)
        if size != num_ranks:
            raise ValueError(
                f"the partition has {num_ranks} parts, and the group has {size} ranks; "
                "they must be as many"
            )
        members = None if group is None else dist.get_process_group_ranks(group)
        try:
            made = dist.new_group(members, timeout=self._timeout, backend="gloo")
            found: list[Any] = [None] * num_ranks
            dist.all_gather_object(found, _this_process(), group=made)
        except RuntimeError as error:
            raise self._gone("the group of the exchange", error) from error
        self._processes = tuple(found)
        return dist.get_rank(made), made

    def agree(self, facts: dict[str, object]) -> None:
        """Refuse to go on where ranks were given different things.

        Raises:
            ValueError: names the first fact that differs, with both values.
        """
        if self._group is None:
            return
        import torch.distributed as dist

        found: list[Any] = [None] * len(self._processes)
        try:
            dist.all_gather_object(found, facts, group=self._group)
        except RuntimeError as error:
            raise self._gone("the comparison of partitions", error) from error
        for other, theirs in enumerate(found):
            for name in facts:
                if theirs[name] != found[0][name]:
                    raise ValueError(
                        f"ranks have different {name}: rank 0 {found[0][name]}, rank {other} "
                        f"{theirs[name]}; load the same partition on each rank"
                    )

    def all_to_all(self, what: str, sent: Array, out: Array, back: Array) -> Array:
        """Exchange entries of one dimension: `out[r]` of them go to rank r, `back[r]` come from it.

        Raises:
            RankLostError: a rank has gone, or did not come within the limit.
        """
        import torch
        import torch.distributed as dist

        if self._lost is not None:  # the connections are closed: nothing can come any more
            raise self._lost
        self._num_exchanges += 1
        received = np.empty(int(back.sum()), dtype=sent.dtype)
        try:
            work = dist.all_to_all_single(
                torch.from_numpy(received),
                torch.from_numpy(np.ascontiguousarray(sent)),
                back.tolist(),
                out.tolist(),
                group=self._group,
                async_op=True,
            )
            work.wait(self._timeout)
        except RuntimeError as error:
            self._lost = self._gone(f"exchange {self._num_exchanges} ({what})", error)
            raise self._lost from error
        return received

    def close(self) -> None:
        """Let go of the group."""
        if self._group is not None:
            import torch.distributed as dist

            group, self._group = self._group, None
            with suppress(RuntimeError):
                dist.destroy_process_group(group)

    def _gone(self, what: str, error: RuntimeError) -> RankLostError:
        """The message of an exchange that did not come about."""
        is_late = any(word in str(error).lower() for word in ("timed out", "timeout"))
        ranks = self._ended_ranks()
        names = ", ".join(f"rank {rank} (process {self._processes[rank].pid})" for rank in ranks)
        if names:
            why = f"{names} has ended" if len(ranks) == 1 else f"{names} have ended"
        elif is_late:
            why = (
                f"no answer within {format_seconds(self._timeout.total_seconds())}; a rank hangs, "
                "is slow, or has ended its epoch without finish()"
            )
        else:
            why = "a rank on another machine, or on its way out, closed its connection"
        return RankLostError(
            f"rank {self.rank}: {what} failed: {why}. The epoch ends here",
            ranks=ranks,
            hint="read what that rank wrote last, then start again from the last checkpoint; "
            f"torch said: {str(error).splitlines()[0] if str(error) else 'nothing'}",
        )

    def _ended_ranks(self) -> tuple[int, ...]:
        """The ranks of this machine whose processes have ended; asks for a while."""
        if not self._processes:
            return ()
        here = _this_process().machine
        until = time.monotonic() + _ASK_FOR_S
        while True:
            ended = tuple(
                rank
                for rank, process in enumerate(self._processes)
                if process.machine == here and _has_ended(process)
            )
            if ended or time.monotonic() >= until:
                return ended
            time.sleep(0.05)


def _this_process() -> RankProcess:
    space = ""
    with suppress(OSError):
        space = os.readlink("/proc/self/ns/pid")
    me = psutil.Process()
    return RankProcess(
        machine=f"{socket.gethostname()} {space}", pid=me.pid, started_unix_s=me.create_time()
    )


def _has_ended(process: RankProcess) -> bool:
    try:
        found = psutil.Process(process.pid)
        is_another = abs(found.create_time() - process.started_unix_s) > _CLOCK_MOVES_S
        return is_another or found.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False
