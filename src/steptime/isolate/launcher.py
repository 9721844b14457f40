"""The program between Steptime and a contained child: it builds the walls, then watches.

It is started as `python -I launcher.py FD` with one end of a socket. Over the socket it receives
the plan, one JSON line, and later possibly the order to kill; it sends back that the child started
(or why not) and how it ended. When the socket closes, for example because Steptime was killed,
everything ends. The child is killed with everything it started, and its tree is gone before the end
is reported. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import shutil
import signal
import socket
import sys
import time
from dataclasses import dataclass
from typing import Any

if __name__ == "__main__":
    # By its place: another Steptime may be installed beside this one, and nothing of ours may hide
    # a module of Python's.
    _package = type(sys)("steptime")
    _package.__path__ = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    sys.modules["steptime"] = _package

from steptime.isolate import inside, kernel
from steptime.isolate.broker.broker import Broker, BrokerPlaces
from steptime.isolate.broker.waiting_call import open_proc
from steptime.isolate.left.left_behind import list_left
from steptime.isolate.left.tails import Tail
from steptime.isolate.left.writes import has_socket, list_layers, list_log, write_list
from steptime.isolate.overlay.layers import Layer, Layers, build_root
from steptime.isolate.overlay.namespaces import enter_namespaces
from steptime.isolate.plan_door import NAME, PlanDoor
from steptime.isolate.surroundings import SHADOW, Surroundings, make_surroundings
from steptime.isolate.tiers import Tier
from steptime.record.live.process_identity import children, descendants

_STATUS_BYTES = 4096  # a write of as much to a pipe arrives as a whole


@dataclass(slots=True, kw_only=True)
class WalledChild:
    """The running child: its process as seen here, and the pipes from it."""

    pid: int
    status: int
    """The pipe on which the first process of its own namespace writes how the command ended."""
    tails: tuple[Tail, ...]
    layers: tuple[Layer, ...] = ()
    has_own_processes: bool = False
    broker: Broker | None = None
    door: PlanDoor | None = None


class ControlLostError(Exception):
    """Steptime gave the order to kill, or is gone."""


def main(control: socket.socket) -> None:
    """Start the child of the plan, and stay with it until it ends."""
    lines = control.makefile("rb")
    plan = json.loads(lines.readline() or b"{}")
    if not plan:
        return
    around = make_surroundings(
        plan["environment"],
        folder=plan["folder"],
        tier=Tier(plan["tier"]),
        share_network=plan["share_network"],
    )
    try:
        see_to_end(plan, around, control)
    finally:
        around.remove()
        shutil.rmtree(os.path.join(plan["folder"], SHADOW), ignore_errors=True)


def see_to_end(plan: dict[str, Any], around: Surroundings, control: socket.socket) -> None:
    """Start the child and watch it, kill what it leaves behind, and list what it wrote."""
    try:
        child, layers = start(plan, around)
    except OSError as error:
        _tell(control, {"uncontained": str(error)})
        return
    if isinstance(child, int):
        _tell(control, {"not_started": child})
        return
    _tell(control, {"started": True, "reasons": layers.reasons if layers else []})
    end: dict[str, Any] = {"signal": signal.SIGKILL}
    with contextlib.suppress(ControlLostError):
        end = watch(child, control, plan["write_s"])
    kill_tree(child)
    for tail in child.tails:
        tail.read(max_rounds=64)
        tail.write(is_last=True)
    paths = list_layers(child.layers) if child.layers else list_log(plan["folder"])
    refused = child.broker.refused if child.broker is not None else ()
    write_list(plan["folder"], paths, refused, but=around.private)
    with contextlib.suppress(OSError):  # nobody listens any longer
        _tell(control, {"end": end})


def _tell(control: socket.socket, message: dict[str, Any]) -> None:
    control.sendall(json.dumps(message).encode() + b"\n")


def start(plan: dict[str, Any], around: Surroundings) -> tuple[WalledChild | int, Layers | None]:
    """Build the walls and start the child; return an errno if it could not be executed."""
    folder, is_isolated = plan["folder"], plan["tier"] == Tier.ISOLATED
    has_own_network = plan["has_own_network"]
    plan["files_limit"] = resource.getrlimit(resource.RLIMIT_NOFILE)
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    pipes = [os.pipe() for _ in range(4)]
    (out, _), (err, _), (started, _), (status, _) = pipes
    tails = (Tail(out, f"{folder}/stdout"), Tail(err, f"{folder}/stderr"))
    layers = None
    if is_isolated or has_own_network:
        enter_namespaces(
            has_own_mounts=is_isolated,
            has_own_network=has_own_network,
            has_own_processes=plan["has_own_processes"],
        )
    open_proc()  # before the child gets another one
    if is_isolated:
        layers = build_root(
            folder,
            plan["layer_bytes"],
            has_own_network=has_own_network,
            share_network=plan["share_network"],
        )
    door = _open_door(around, layers)
    answers, theirs = socket.socketpair()
    plan["answers"] = theirs.fileno()
    pid = os.fork()
    if pid == 0:
        inside.run(plan, around, layers, [writer for _, writer in pipes])
    theirs.close()
    for _, writer in pipes:
        os.close(writer)
    with open(started, "rb") as file:
        failure = file.read()
    child = WalledChild(
        pid=pid,
        status=status,
        tails=tails,
        layers=tuple(layers.made) if layers else (),
        has_own_processes=is_isolated and plan["has_own_processes"],
        door=door,
    )
    if not failure:
        child.broker = _start_broker(plan, around, child, answers)
        return child, layers
    kill_tree(child)
    kind, _, text = failure.decode().partition(" ")
    if kind == "setup":
        raise OSError(text)
    return int(text), None


def _open_door(around: Surroundings, layers: Layers | None) -> PlanDoor | None:
    """Return the door at which the child's processes ask; an isolated one is in its own root."""
    if around.plan is None:
        return None
    private = (layers.root if layers else "") + around.private
    os.makedirs(private, exist_ok=True)
    return PlanDoor(os.path.join(private, NAME), around.plan)


def _start_broker(
    plan: dict[str, Any], around: Surroundings, child: WalledChild, answers: socket.socket
) -> Broker | None:
    """Return who answers the calls that the child's filter asks about."""
    with answers:
        _, found, _, _ = socket.recv_fds(answers, 1, 1)
    if not found:
        return None
    places = BrokerPlaces(
        launcher=os.getpid(),
        folders=(plan["folder"], *around.folders, *(("/dev/shm",) if child.layers else ())),
        memory=around.memory,
        is_own_socket=lambda path: has_socket(child.layers, path),
        has_own_network=plan["has_own_network"],
    )
    return Broker(found[0], places)


def watch(child: WalledChild, control: socket.socket, write_s: float) -> dict[str, Any]:
    """Move the output to its files until the command ends; return how, and what it left behind.

    It is on the disk each `write_s`.

    Raises:
        ControlLostError: the child must be killed.
    """
    waking, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    due, heard = time.monotonic() + write_s, b""
    while (status := _reap(child.pid)) is None:
        readers = [tail.reader for tail in child.tails if tail.is_open]
        broker = child.broker if child.broker is not None and child.broker.is_open else None
        readers += [broker.descriptor] if broker is not None else []
        readers += [child.door.fileno()] if child.door is not None else []
        wait_s = max(0.0, due - time.monotonic())
        ready = select.select([control.fileno(), waking, *readers], [], [], wait_s)[0]
        for tail in child.tails:
            if tail.reader in ready:
                tail.read()
        if broker is not None and broker.descriptor in ready:
            broker.answer()
        if child.door is not None and child.door.fileno() in ready:
            child.door.answer()
        if waking in ready:
            os.read(waking, 1 << 10)
        if control.fileno() in ready:
            heard = _obey(child, heard + (control.recv(1 << 16) or b"kill\n"))
        if time.monotonic() >= due:
            for tail in child.tails:
                tail.write()
            due = time.monotonic() + write_s
    if child.has_own_processes and (text := os.read(child.status, _STATUS_BYTES)):
        told = json.loads(text)
        status, left = told["status"], told["left"]
    else:
        left = list_left(descendants(os.getpid()))
    code = os.waitstatus_to_exitcode(status)
    return {"signal": -code, "left": left} if code < 0 else {"exit_code": code, "left": left}


def _obey(child: WalledChild, heard: bytes) -> bytes:
    """Do what Steptime wants; return the beginning of what has not come as a whole yet.

    Raises:
        ControlLostError: the child must be killed.
    """
    *orders, rest = heard.split(b"\n")
    for order in orders:
        if not order.startswith(b"{"):
            raise ControlLostError
        if child.door is not None:
            child.door.show(json.loads(order)["show"])
    return rest


def _reap(pid: int) -> int | None:
    """Reap what has ended; return the wait status of `pid` if it is among them."""
    status = None
    with contextlib.suppress(ChildProcessError):
        while True:
            ended, code = os.waitpid(-1, os.WNOHANG)
            if ended == 0:
                return status
            if ended == pid:
                status = code
    return status


def kill_tree(child: WalledChild) -> None:
    """Send SIGKILL to every descendant of this process until none is left.

    In a process namespace, everything dies with the first process. Elsewhere the children of the
    dead become ours, one by one, so that killing our children reaches all; one that forks for ever
    is caught because that is a short list, read again as soon as one has ended.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    while True:
        for pid in [child.pid] if child.has_own_processes else children(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
