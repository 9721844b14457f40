"""What a trial must not reach: files, shared memory, servers and a process of the same user.

In: a folder. Out: an `Outside` with the facts for `_harms.py`, which says afterwards what changed.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from multiprocessing import shared_memory
from pathlib import Path

import psutil

# The process outside: counts signals, and says what it is asked for on its standard output.
TARGET = """
import ctypes, json, signal, sys
seen = []
signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
byte = ctypes.create_string_buffer(b"o")
print(ctypes.addressof(byte), flush=True)
for line in sys.stdin:
    print(json.dumps({"signals": len(seen), "byte": byte.value.decode()}), flush=True)
"""
HARMS = Path(__file__).resolve().parent / "_harms.py"
UNSEEN = (
    "socket: a ring of io_uring",
    "process: the priority of all of the user's",
    *(f"machine: {what}" for what in ("a setting of the kernel", "its name", "its log")),
    *(f"machine: {what}" for what in ("a setting in /sys", "one of its devices")),
    "machine: rights of a device",
)
"""Attempts of which nothing is seen outside: they got through if they were let."""
HELD = (
    "port: taken from a program that wants it", "file: locked", "file: held by a lease",
)  # fmt: skip
"""Attempts that are seen only while the trial runs."""

SIZE = 4096
GET_GENERATION = 0x80087601
IPC_CREAT, IPC_RMID, NOBODY = 0o1000, 0, 64_999
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.sem_open.restype = ctypes.c_void_p
QUEUES = ctypes.CDLL("librt.so.1", use_errno=True)


class Outside:
    """Things of the user's; `close` it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._word = secrets.token_hex(4)
        self.key, self.left_key = secrets.randbelow(1 << 30), secrets.randbelow(1 << 30)
        self.mark = f"harm-{self._word}"
        self.file = folder / "kept"
        self.file.write_text("kept")
        os.utime(self.file, (1_000_000_000, 1_000_000_000))
        self._generation_before = self._generation()
        self._terminal, self._tty = os.openpty()
        os.set_blocking(self._terminal, False)
        self._modes = termios.tcgetattr(self._tty)
        self._segment = shared_memory.SharedMemory(f"harm_{self._word}", create=True, size=SIZE)
        self._segment.buf[0] = ord("o")
        self._semaphore = LIBC.sem_open(self._semaphore_name(), os.O_CREAT, 0o600, 0)
        self._system_v = LIBC.shmget(self.key, 4096, IPC_CREAT | 0o600)
        LIBC.shmat.restype = ctypes.c_void_p
        self._attached = LIBC.shmat(self._system_v, None, 0)
        ctypes.memmove(self._attached, b"o", 1)
        self.servers = self._serve()
        with socket.create_server(("127.0.0.1", 0)) as door:
            self.free_port = door.getsockname()[1]
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-c", TARGET],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self._address = int(self.process.stdout.readline())
        self._process_before = self._of_process()
        self._in_memory = set(os.listdir("/dev/shm"))

    def _semaphore_name(self) -> bytes:
        return f"/harm_{self._word}".encode()

    def _serve(self) -> dict[str, socket.socket]:
        made = {
            "tcp": socket.create_server(("127.0.0.1", 0)),
            "udp": socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
            "abstract": socket.socket(socket.AF_UNIX),
            "file": socket.socket(socket.AF_UNIX),
            "datagram": socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM),
        }
        made["udp"].bind(("127.0.0.1", 0))
        made["abstract"].bind(f"\0{self.mark}")
        made["file"].bind(str(self.folder / "socket"))
        made["datagram"].bind(str(self.folder / "datagrams"))
        for name in ("abstract", "file"):
            made[name].listen()
        for server in made.values():
            server.setblocking(False)
        return made

    def facts(self, go: Path, *, only: str | None = None, stays_s: float = 0.0) -> str:
        """What `_harms.py` is told."""
        facts = {
            "only": only,
            "go": str(go),
            "stays_s": stays_s,
            "file": str(self.file),
            "folder": str(self.folder),
            "terminal": os.ttyname(self._tty),
            "segment": self._segment.name,
            "semaphore": f"harm_{self._word}",
            "key": self.key,
            "left_key": self.left_key,
            "tcp_port": self.servers["tcp"].getsockname()[1],
            "udp_port": self.servers["udp"].getsockname()[1],
            "free_port": self.free_port,
            "abstract": self.mark,
            "socket_file": str(self.folder / "socket"),
            "datagram_file": str(self.folder / "datagrams"),
            "pid": self.process.pid,
            "address": self._address,
            "nobody": NOBODY,
            "mark": self.mark,
        }
        return json.dumps(facts)

    # --- what changed ---------------------------------------------------------------------

    def held(self) -> list[str]:
        """What a program outside does not get while the trial runs."""
        found = []
        try:
            socket.create_server(("127.0.0.1", self.free_port)).close()
        except OSError:
            found.append("port: taken")
        try:
            descriptor = os.open(self.file, os.O_WRONLY | os.O_NONBLOCK)
        except BlockingIOError:
            return [*found, "file: held by a lease"]
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found.append("file: locked")
        os.close(descriptor)
        return found

    def changes(self) -> list[str]:
        """What the trial reached, now that it is over; each is said once."""
        found = [*self._of_files(), *self._of_memory(), *self._of_servers(), *self._of_terminal()]
        now = self._of_process()
        before, self._process_before = self._process_before, now
        found += [
            f"process: {name} {before[name]} -> {now[name]}"
            for name in now
            if now[name] != before[name]
        ]
        return found + self._left_processes()

    def _of_files(self) -> list[str]:
        found = []
        try:
            facts, text = self.file.stat(), self.file.read_text()
            names = os.listxattr(self.file)
        except FileNotFoundError:
            self.file.write_text("kept")
            os.utime(self.file, (1_000_000_000, 1_000_000_000))
            self.file.chmod(0o644)
            self._generation_before = self._generation()  # another file has another
            return ["file: removed"]
        if text != "kept":
            found.append("file: its content")
            self.file.write_text("kept")
        elif facts.st_mtime != 1_000_000_000:
            found.append("file: its times")
        os.utime(self.file, (1_000_000_000, 1_000_000_000))
        if facts.st_mode & 0o777 == 0o777:
            found.append("file: its rights")
            self.file.chmod(0o644)
        if names:
            found.append("file: an attribute")
            os.removexattr(self.file, names[0])
        if self._generation() != self._generation_before:
            found.append("file: its generation")
            self._generation_before = self._generation()
        for name in ("new", "link"):
            if (self.folder / name).exists():
                found.append(f"file: {name}")
                (self.folder / name).unlink()
        return found

    def _generation(self) -> int | None:
        with contextlib.suppress(OSError), self.file.open("rb") as file:
            (found,) = struct.unpack("l", fcntl.ioctl(file, GET_GENERATION, bytes(8)))
            return int(found)
        return None

    def _of_terminal(self) -> list[str]:
        found = []
        with contextlib.suppress(BlockingIOError):
            os.read(self._terminal, 100)
            found.append("terminal: text")
        if termios.tcgetattr(self._tty) != self._modes:
            found.append("terminal: its modes")
            termios.tcsetattr(self._tty, termios.TCSANOW, self._modes)
        return found

    def _of_memory(self) -> list[str]:
        found = []
        if bytes(self._segment.buf[:1]) != b"o":
            found.append("memory: the segment's content")
            self._segment.buf[0] = ord("o")
        path = f"/dev/shm/{self._segment.name}"
        if os.path.exists(path) and os.path.getsize(path) != SIZE:
            found.append("memory: the segment's length")
            os.truncate(path, SIZE)
        now = set(os.listdir("/dev/shm"))
        ours = {name for name in self._in_memory - now if self._word in name}
        if ours:
            found.append("memory: the segment is gone")
            self._segment.close()
            self._segment = shared_memory.SharedMemory(f"harm_{self._word}", create=True, size=SIZE)
            self._segment.buf[0] = ord("o")
        for name in ("harm_count", "harm_left", "sem.harm_left"):
            if name in now:
                found.append(f"memory: left /dev/shm/{name}")
                os.unlink(f"/dev/shm/{name}")
        if LIBC.sem_trywait(ctypes.c_void_p(self._semaphore)) == 0:
            found.append("memory: the semaphore was raised")
        if ctypes.string_at(self._attached, 1) != b"o":
            found.append("memory: the System V segment's content")
            ctypes.memmove(self._attached, b"o", 1)
        for kind in ("shm", "sem", "msg"):
            words = (self.left_key, 0, 0) if kind in ("shm", "sem") else (self.left_key, 0)
            left = getattr(LIBC, f"{kind}get")(*words)
            if left >= 0:
                found.append(f"memory: left a System V {kind}")
                getattr(LIBC, f"{kind}ctl")(left, *((0,) if kind == "sem" else ()), IPC_RMID, None)
        if QUEUES.mq_unlink(b"/harm_left") == 0:
            found.append("memory: left a POSIX queue")
        return found

    def _of_servers(self) -> list[str]:
        found = []
        for name, server in self.servers.items():
            with contextlib.suppress(BlockingIOError):
                if server.type == socket.SOCK_DGRAM:
                    server.recv(100)
                else:
                    server.accept()[0].close()
                found.append(f"network: reached the server {name}")
        return found

    def _of_process(self) -> dict[str, object]:
        if self.process.poll() is not None:
            return {"alive": False}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        process = psutil.Process(self.process.pid)
        facts: dict[str, object] = {"alive": True}
        facts["nice"], facts["cores"] = process.nice(), process.cpu_affinity()
        facts["limit"] = process.rlimit(psutil.RLIMIT_NOFILE)
        facts["oom"] = Path(f"/proc/{self.process.pid}/oom_score_adj").read_text().strip()
        facts["stopped"] = process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write("?\n")
        self.process.stdin.flush()
        return facts | json.loads(self.process.stdout.readline())

    def _left_processes(self) -> list[str]:
        """End what is left; one that forks for ever must be caught."""
        num, until_s = 0, time.monotonic() + 10
        while time.monotonic() < until_s:
            pids = [pid for pid in psutil.pids() if self._is_left(pid)]
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            num += len(pids)
            if not pids:
                break
        return ["process: some outlived the trial"] if num else []

    def _is_left(self, pid: int) -> bool:
        with contextlib.suppress(OSError):
            return self.mark.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        return False

    def close(self) -> None:
        """Take everything away again."""
        self.process.kill()
        self.process.wait()
        for server in self.servers.values():
            server.close()
        os.close(self._terminal)
        os.close(self._tty)
        self._segment.close()
        with contextlib.suppress(FileNotFoundError):
            self._segment.unlink()
        LIBC.sem_unlink(self._semaphore_name())
        LIBC.shmdt(ctypes.c_void_p(self._attached))
        LIBC.shmctl(self._system_v, IPC_RMID, None)
