"""Starts the user's command and waits for it; nothing else does.

In: an argv and the run's folder. Out: how the command ended. The child gets the descriptors, signal
mask, dispositions and process group that this process was started with, and our death never ends
it. The cli decides what is said about any of it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.core.executable import NotStarted as NotStarted
from steptime.core.executable import need_executable, not_started, why_not_started
from steptime.core.process_end import ProcessEnd, RunState
from steptime.launch.ptrace_leave import load_permit
from steptime.launch.shims import write_shims

if TYPE_CHECKING:
    from steptime.launch.signal_witness import SignalWitness

_PACKAGE = Path(__file__).resolve().parent.parent
SITE = _PACKAGE / "inject" / "site"
GUEST = _PACKAGE / "guest"

_FORWARDED = frozenset(
    {signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}
)
_WATCHED = _FORWARDED | {signal.SIGCHLD}
_ENDING = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a process; where one is ignored, as under nohup, it stays so."""
_FOR_THE_COMMAND = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals that mean something to the command alone, for example that it should save its state."""
# What Python itself ignores from its start on; `subprocess` resets the same.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_POLL_S = 0.05  # without sigtimedwait: how late a signal or an end may be noticed


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedCommand:
    """The started command; `mask` is the signal mask to restore when it has ended."""

    pid: int
    mask: frozenset[int]
    witness: SignalWitness | None
    """Tells what was sent to the command too; None where the system does not name senders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Signals:
    """What the child starts with: blocked signals, and dispositions that differ from ours."""

    mask: frozenset[int]
    dispositions: Mapping[int, signal.Handlers]


def user_environment() -> dict[str, str]:
    """Return the environment that this process was started with.

    A Python that starts in the C locale sets LC_CTYPE for itself (PEP 538); the user's command must
    not inherit that.
    """
    environment = dict(os.environ)
    try:
        initial = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return environment
    environment.pop("LC_CTYPE", None)
    for entry in initial:
        name, _, value = entry.partition(b"=")
        if name == b"LC_CTYPE":
            environment["LC_CTYPE"] = os.fsdecode(value)
    return environment


def observed_environment(environment: Mapping[str, str], run_folder: Path) -> dict[str, str]:
    """Return the environment that lets the guest into each Python process of the command.

    It makes the shims in the run's folder. A folder with the separator in its name cannot be on a
    search path, so it is left out.

    Args:
        environment: the user's.
        run_folder: absolute; holds `shims/` afterwards.

    Raises:
        OSError: the shims cannot be written.
    """
    ours = {**environment, "STEPTIME_RUN": str(run_folder), "STEPTIME_GUEST": str(GUEST)}
    for wish in ("STEPTIME_PROFILE", "STEPTIME_HEALTH", "STEPTIME_CHECKSUMS"):
        ours.pop(wish, None)  # it belongs to a run around this one
    return _entered(ours, run_folder)


def _entered(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return an environment that puts our folders in front; `folder` gets the shims."""
    ours = dict(environment)
    if os.pathsep in str(SITE):
        return ours
    ours["PYTHONPATH"] = _in_front(SITE, environment.get("PYTHONPATH"))
    shims = folder / "shims"
    if "PATH" in environment and os.pathsep not in str(shims):
        write_shims(shims, SITE, environment["PATH"].split(os.pathsep))
        # An empty PATH means the current folder, so it is kept as an entry.
        ours["PATH"] = f"{shims}{os.pathsep}{environment['PATH']}"
    return ours


def seeded_environment(environment: Mapping[str, str], folder: Path, seed: int) -> dict[str, str]:
    """Return the environment in which each Python process begins with a seed.

    It is that of `random`, and of numpy and torch as soon as they are there. A script that seeds
    itself afterwards has its own.

    Args:
        environment: the user's.
        folder: absolute; holds `shims/` afterwards.
        seed: 0 to 2**32 - 1, as numpy wants it.

    Raises:
        OSError: the shims cannot be written.
    """
    return {**_entered(environment, folder), "STEPTIME_SEED": str(seed)}


def _in_front(folder: Path, search: str | None) -> str:
    if not search:
        return str(folder)  # an empty entry would add the current folder to sys.path
    if search.split(os.pathsep)[0] == str(folder):
        return search  # a run inside a run
    return f"{folder}{os.pathsep}{search}"


def start(argv: tuple[str, ...], environment: Mapping[str, str]) -> StartedCommand:
    """Start the command; from here on `wait` receives the watched signals.

    Raises:
        NotStartedError: it cannot be started.
    """
    path = need_executable(argv, environment)
    dispositions = _initial_dispositions()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it were ignored, we would lose the exit code
    mask = frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED))
    witness = _start_witness(argv)
    try:
        pid = _spawn(path, argv, environment, _Signals(mask=mask, dispositions=dispositions))
    except OSError as error:
        if witness is not None:
            witness.stop()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        raise not_started(argv, why_not_started(error)) from error
    return StartedCommand(pid=pid, mask=mask, witness=witness)


def _start_witness(argv: tuple[str, ...]) -> SignalWitness | None:
    if not hasattr(signal, "sigtimedwait"):
        return None
    from steptime.launch.signal_witness import SignalWitness

    try:
        return SignalWitness(_FORWARDED, argv)
    except (OSError, AttributeError):  # no process is left for it; what we get is passed on
        return None


def release_streams() -> None:
    """Let go of stdin and stdout: whoever is at the other end must see the command close them."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(null, stream)
    if null > 1:
        os.close(null)


def _initial_dispositions() -> dict[int, signal.Handlers]:
    """Return the original dispositions of the signals that Python or we have changed."""
    dispositions: dict[int, signal.Handlers] = {}
    for number in _IGNORED_BY_PYTHON:
        dispositions[number] = signal.SIG_DFL
    for number in (signal.SIGINT, signal.SIGCHLD):
        is_ignored = signal.getsignal(number) is signal.SIG_IGN
        dispositions[number] = signal.SIG_IGN if is_ignored else signal.SIG_DFL
    return dispositions


def _spawn(
    path: str, argv: tuple[str, ...], environment: Mapping[str, str], signals: _Signals
) -> int:
    """Fork and execute; return the process id.

    This is done by hand: `subprocess` cannot set the signal mask, glibc's `posix_spawn` leaves two
    signals ignored, and neither passes on an ignored SIGCHLD. This process has one thread.
    """
    permit, us = load_permit(), os.getpid()
    reader, writer = os.pipe()  # both are closed when the child executes
    pid = os.fork()
    if pid == 0:
        try:
            if permit is not None:
                permit(us)
            _execute(path, argv, environment, signals)
        except OSError as error:
            os.write(writer, str(error.errno).encode())
        finally:
            os._exit(127)
    os.close(writer)
    with open(reader, "rb") as file:
        failure = file.read()
    if failure:
        os.waitpid(pid, 0)
        raise OSError(int(failure), os.strerror(int(failure)))
    return pid


def _execute(
    path: str, argv: tuple[str, ...], environment: Mapping[str, str], signals: _Signals
) -> None:
    """Become the command, in the child."""
    for number, disposition in signals.dispositions.items():
        signal.signal(number, disposition)
    signal.pthread_sigmask(signal.SIG_SETMASK, signals.mask)
    try:
        os.execve(path, argv, environment)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        # Without a `#!` line, a shell runs the file as a script.
        os.execve("/bin/sh", ("/bin/sh", path, *argv[1:]), environment)


def wait(
    child: StartedCommand,
    tick: Callable[[], float],
    *,
    on_end: Callable[[ProcessEnd], None],
    first_s: float = 1.0,
) -> ProcessEnd:
    """Wait for the child, pass on the signals that we get, and call `tick` in between.

    When this returns, a signal that ends a process raises KeyboardInterrupt, the first time.

    Args:
        child: what `start` returned.
        tick: called when it is due; returns the time until the next call [s].
        on_end: called when the child has ended, before any signal can reach this process.
        first_s: time until the first call [s].
    """
    if not hasattr(signal, "sigtimedwait"):
        return _wait_with_handlers(child, tick, on_end, first_s)
    due = time.monotonic() + first_s
    while (end := _poll(child.pid)) is None:
        info = signal.sigtimedwait(_WATCHED, max(0.0, due - time.monotonic()))
        # A signal from the kernel (Ctrl-C at the terminal) went to the whole foreground group.
        if info is not None and info.si_signo in _FORWARDED and info.si_code <= 0:
            _forward_unless_sent(child, info.si_signo, info.si_pid)
        if time.monotonic() >= due:
            due = time.monotonic() + tick()
    on_end(end)
    if child.witness is not None:
        child.witness.stop()
    while signal.sigtimedwait(_WATCHED, 0) is not None:
        pass  # they were meant for the command, which is gone
    _interrupt_at_ending()
    signal.pthread_sigmask(signal.SIG_SETMASK, child.mask)
    return end


def _interrupt_at_ending() -> None:
    """Let each signal that ends a process interrupt it as Ctrl-C does, the first of them alone.

    A terminal that closes, or a scheduler, may send several. Those that were meant for the command
    come too late.
    """

    def interrupt(_number: int, _frame: object) -> None:
        for number in heard:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    heard = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heard:
        signal.signal(number, interrupt)
    for number in _FOR_THE_COMMAND:
        signal.signal(number, signal.SIG_IGN)


def _wait_with_handlers(
    child: StartedCommand,
    tick: Callable[[], float],
    on_end: Callable[[ProcessEnd], None],
    first_s: float,
) -> ProcessEnd:
    """Wait without knowing the sender (macOS): SIGINT and SIGQUIT count as the terminal's."""

    def forward(number: int, _frame: object) -> None:
        if number not in (signal.SIGINT, signal.SIGQUIT):
            _forward(child.pid, number)

    heard = [n for n in _FORWARDED if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, forward) for number in heard}
    signal.pthread_sigmask(signal.SIG_SETMASK, child.mask)
    due = time.monotonic() + first_s
    while (end := _poll(child.pid)) is None:
        time.sleep(_POLL_S)
        if time.monotonic() >= due:
            due = time.monotonic() + tick()
    on_end(end)
    for number, handler in before.items():
        signal.signal(number, handler)
    _interrupt_at_ending()
    return end


def _forward_unless_sent(child: StartedCommand, number: int, sender: int) -> None:
    """Pass a signal on that the command was not sent itself."""
    if child.witness is None or not child.witness.is_for_all(number, sender):
        _forward(child.pid, number)


def _forward(pid: int, number: int) -> None:
    # It may have ended just now, or belong to somebody else (sudo).
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _poll(pid: int) -> ProcessEnd | None:
    """Return how the child ended, or None while it runs."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    if ended == 0:
        return None
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return ProcessEnd(state=RunState.KILLED, signal=-code)
    return ProcessEnd(state=RunState.FAILED if code else RunState.FINISHED, exit_code=code)


def shell_exit_code(end: ProcessEnd) -> int:
    """Return the number that a shell shows: the exit code, or 128 + signal."""
    return end.exit_code if end.exit_code is not None else 128 + (end.signal or 0)
