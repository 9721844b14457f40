"""Finds the best tier that works here by trying it: mount, write, compare. Once for each study."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil

from steptime.core.executable import NotStarted
from steptime.errors import ContainmentError
from steptime.isolate.child import start_contained
from steptime.isolate.tiers import Containment, Tier

_LIMIT_S = 20.0  # a disk that hangs must not hang the study
_MEMORY_FRACTION = 0.5  # of the free memory: the script needs the rest
_LEAST_LAYER_BYTES = 64 << 20
EVERYTHING = ("files", "network", "sockets", "memory", "processes")
"""What nothing holds where the user accepts it; `Containment.lacks` says what of it is lacking."""

# Writes outside its folder in each way that a layer must accept, and reports how that went. At the
# end: a folder that is removed and made again needs attributes that tmpfs has since Linux 6.6.
_ATTEMPTS = """\
import multiprocessing, os, socket, sys
there, folder, port = sys.argv[1:4]
os.chdir(there)
with open("kept", "a") as file:
    file.write("more")
os.utime("kept", (1, 1))
os.chmod("kept", 0o600)
os.remove("removed")
os.rename("moved", "made")
os.mkdir("new")
assert open("kept").read() == "keptmore" and open("made").read() == "moved"
addresses = ["127.0.0.1"]
try:
    addresses.append(socket.gethostbyname(socket.gethostname()))
except OSError:
    pass
for address in addresses:  # ranks of one machine meet under its name
    with socket.socket() as server, socket.socket() as client:
        server.bind((address, 0))
        server.listen(1)
        client.connect(server.getsockname())
try:
    socket.create_connection(("127.0.0.1", int(port))).close()
except OSError:
    pass
multiprocessing.Lock()
assert os.stat("/dev/null").st_rdev
assert open("/proc/self/stat").read().split()[0] == str(os.getpid())
try:
    os.rmdir("empty")
    os.mkdir("empty")
except OSError:
    print("again", end="")
with open(os.path.join(folder, "report"), "x") as file:
    file.write("done")
"""


def probe(
    scratch: Path,
    *,
    allow_unsafe: bool = False,
    best: Tier = Tier.ISOLATED,
    share_network: bool = False,
) -> Containment:
    """Return the best containment that works here.

    Args:
        scratch: a folder of ours on the disk that the script works on; left as it was.
        allow_unsafe: continue where nothing can be contained.
        best: try no better tier than this.
        share_network: leave the host's network to the child, for data that comes over it.

    Raises:
        ContainmentError: nothing works, and the user did not insist.
    """
    reasons: list[str] = []
    if best is Tier.ISOLATED:
        found = _first_that_works(
            scratch, reasons, _wanted(Tier.ISOLATED, share_network=share_network)
        )
        if found is not None:
            return found
    if best is not Tier.UNSAFE:
        found = _first_that_works(
            scratch, reasons, _wanted(Tier.GUARDED, share_network=share_network)
        )
        if found is not None:
            return found
    if allow_unsafe:
        return Containment(
            tier=Tier.UNSAFE, has_filter=False, reasons=tuple(reasons), lacks=EVERYTHING
        )
    why = "; ".join(reasons) or "no tier was allowed"
    raise ContainmentError(
        f"a trial could overwrite your files here, or reach other programs: {why}",
        hint="Run it where user namespaces, or Landlock and seccomp, work (outside the container, "
        "for example), or accept the risk with --unsafe-trials.",
    )


def _wanted(tier: Tier, *, share_network: bool) -> Iterator[Containment]:
    """Yield what to try of a tier, best first."""
    is_isolated = tier is Tier.ISOLATED
    for has_own_processes in (True, False) if is_isolated else (False,):
        for has_own_network in (False,) if share_network else (True, False):
            # Namespaces of its own hold all but socket files, so they are enough without a filter.
            is_enough = has_own_processes and (has_own_network or share_network)
            for has_filter in (True, False) if is_enough else (True,):
                # Where sockets are looked at, and not hidden, the address may change meanwhile.
                is_raced = not (is_isolated and has_own_network)
                lacks = ("network",) if share_network else ("races",) if is_raced else ()
                yield Containment(
                    tier=tier,
                    has_own_network=has_own_network,
                    has_own_processes=has_own_processes,
                    share_network=share_network,
                    has_filter=has_filter,
                    layer_bytes=_layer_bytes() if is_isolated else 0,
                    lacks=lacks if has_filter or share_network else ("sockets",),
                )


def _first_that_works(
    scratch: Path, reasons: list[str], candidates: Iterable[Containment]
) -> Containment | None:
    """Return the first that works; if none does, add why to the reasons.

    Those of one tier hold the same with other means: only a better tier needs a reason.
    """
    failures: list[str] = []
    for wanted in candidates:
        failure, lacks = _try(wanted, scratch)
        if failure is None:
            return replace(wanted, reasons=(*reasons, *lacks))
        if (reason := f"{wanted.tier.value}: {failure}") not in failures:
            failures.append(reason)
    reasons += failures
    return None


def _try(wanted: Containment, scratch: Path) -> tuple[str | None, tuple[str, ...]]:
    """Return why it does not work, or None, and what this tier's walls lack here."""
    with _prepared(scratch) as there, socket.create_server(("127.0.0.1", 0)) as server:
        folder = there / "trial"
        folder.mkdir()
        before = _snapshot(there)
        # Not -I: the redirection of the guarded tier comes in through PYTHONPATH.
        port = str(server.getsockname()[1])
        argv = (sys.executable, "-s", "-c", _ATTEMPTS, str(there), str(folder), port)
        plain = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        try:
            child = start_contained(argv, plain, cwd=there, folder=folder, containment=wanted)
        except ContainmentError as error:
            return str(error), ()
        if isinstance(child, NotStarted):
            return f"Python {child.reason}", ()
        if child.wait(_LIMIT_S) is None:
            child.kill()
            return f"writing took more than {_LIMIT_S:.0f} s", ()
        if _snapshot(there) != before:
            return "a write reached the disk", ()
        if not wanted.share_network and _was_reached(server):
            return "a connection reached this machine", ()
        if not (folder / "report").exists():
            last = (folder / "stderr").read_text(errors="replace").strip().rpartition("\n")[2]
            return f"a write failed: {last}", ()
        lacks = list(child.reasons)
        if (folder / "stdout").read_bytes() == b"again":
            lacks.append("a folder that is removed cannot be made again (Linux before 6.6)")
        return None, tuple(lacks)


def _was_reached(server: socket.socket) -> bool:
    server.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        server.accept()[0].close()
        return True
    return False


@contextlib.contextmanager
def _prepared(scratch: Path) -> Iterator[Path]:
    """Provide a folder with something in it, and remove it afterwards."""
    there = Path(tempfile.mkdtemp(prefix="probe-", dir=scratch)).resolve()
    try:
        for name in ("kept", "removed", "moved"):
            (there / name).write_text(name)
        (there / "empty").mkdir()
        yield there
    finally:
        shutil.rmtree(there, ignore_errors=True)


def _snapshot(there: Path) -> dict[str, tuple[object, ...]]:
    """Return everything in a folder that must stay: bytes, rights and times."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(there.iterdir()):
        if path.name != "trial":
            facts = path.stat()
            text = path.read_bytes() if path.is_file() else b""
            found[path.name] = (text, facts.st_mode, facts.st_mtime_ns, facts.st_uid, facts.st_ino)
    return found


def _layer_bytes() -> int:
    free = psutil.virtual_memory().available
    with contextlib.suppress(OSError, ValueError):
        text = Path("/proc/self/cgroup").read_text()
        (place,) = (line[3:] for line in text.splitlines() if line.startswith("0::"))
        folder = Path("/sys/fs/cgroup") / place.lstrip("/")
        free = min(free, int((folder / "memory.max").read_text()))
    return max(_LEAST_LAYER_BYTES, int(free * _MEMORY_FRACTION))
