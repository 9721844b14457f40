"""_harms.py FACTS: tries to do harm in each way that a training script may, one after the other.

FACTS is JSON: what there is outside, by name (see `Outside` in _outside.py), and which attempt
alone is made, if not all are. Prints one JSON object: for each attempt `done`, or the error that it
ended with. Whether it got through is for the outside to say.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from multiprocessing import resource_tracker, shared_memory

FACTS = json.loads(sys.argv[1])
LIBC = ctypes.CDLL(None, use_errno=True)
IPC_CREAT, SHARED = 0o1000, 0o600
PTRACE_ATTACH = 16
F_SETSIG, F_SETOWN_EX, NEITHER = 10, 15, 3  # the last: a file opened neither to read nor to write
SET_GENERATION = 0x40087602
MACHINES_DEVICES = ("tty0", "console", "loop-control", "fuse", "kvm", "cpu_dma_latency")


def call(name: str, *arguments: object) -> int:
    """A function of the C library; raises what it ends with."""
    function = getattr(LIBC, name)
    function.restype = ctypes.c_void_p if name == "shmat" else ctypes.c_int
    result = int(function(*arguments))
    if result in (-1, (1 << 64) - 1):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def place(name: str) -> bytes:
    return os.fsencode(FACTS[name])


# --- files


def write_python() -> None:
    with open(FACTS["file"], "a") as file:
        file.write("more")


def write_shell() -> None:
    subprocess.run(["sh", "-c", f"echo more >> '{FACTS['file']}'"], check=True)


def write_c() -> None:
    descriptor = call("open", place("file"), os.O_WRONLY | os.O_APPEND)
    call("write", descriptor, b"more", 4)


def truncate_c() -> None:
    call("truncate", place("file"), ctypes.c_long(0))


def mode_shell() -> None:
    subprocess.run(["chmod", "777", FACTS["file"]], check=True)


def mode_descriptor() -> None:
    descriptor = call("open", place("file"), os.O_RDONLY)
    call("fchmod", descriptor, 0o777)


def times_shell() -> None:
    subprocess.run(["touch", "-d", "2001-01-01", FACTS["file"]], check=True)


def attribute_c() -> None:
    call("setxattr", place("file"), b"user.harm", b"x", 1, 0)


def new_file_shell() -> None:
    subprocess.run(["sh", "-c", f"echo > '{FACTS['folder']}/new'"], check=True)


def remove_shell() -> None:
    subprocess.run(["rm", "-f", FACTS["file"]], check=True)


def link_c() -> None:
    call("link", place("file"), place("folder") + b"/link")


def truncate_by_open(flags: int) -> Callable[[], None]:
    return lambda: KEPT.append(call("open", place("file"), flags | os.O_TRUNC))


def truncate_by_newer_open() -> None:
    how = struct.pack("QQQ", os.O_RDONLY | os.O_TRUNC, 0, 0)
    call("syscall", ctypes.c_long(437), -100, place("file"), how, len(how))


def through_processes() -> None:
    """Write to the file as other processes see it: from their root, and from their open folders."""
    parts = FACTS["file"].split("/")[1:]
    ends = ["/".join(parts[depth:]) for depth in range(len(parts))]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            names = ["root", *(f"fd/{name}" for name in os.listdir(f"/proc/{pid}/fd"))]
            for place in [f"/proc/{pid}/{name}" for name in names if int(pid) != os.getpid()]:
                for end in ends:
                    name = f"{place}/{end}".encode()
                    descriptor = LIBC.open(name, os.O_WRONLY | os.O_APPEND)
                    if descriptor >= 0:
                        call("write", descriptor, b"more", 4)
                        os.close(descriptor)


def mode_race() -> None:
    """Change the path while it is looked at, from one of our own to one outside and back."""
    own = os.path.join(os.path.dirname(FACTS["go"]), "mine")
    with open(own, "w"):
        pass
    size = 512
    paths = [path.ljust(size, b"\0") for path in (os.fsencode(own), place("file"))]
    buffer, is_over = ctypes.create_string_buffer(size), threading.Event()

    def flip() -> None:
        while not is_over.is_set():
            for path in paths:
                ctypes.memmove(buffer, path, size)

    thread = threading.Thread(target=flip)
    thread.start()
    for _ in range(2000):
        LIBC.chmod(buffer, 0o777)
    is_over.set()
    thread.join()


def generation() -> None:
    descriptor = call("open", place("file"), os.O_RDONLY)
    fcntl.ioctl(descriptor, SET_GENERATION, struct.pack("l", 4242))


def lock() -> None:
    descriptor = call("open", place("file"), os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def lease() -> None:
    descriptor = call("open", place("file"), os.O_RDONLY)
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)


# --- the machine: what is written is what was there, so nothing changes where it gets through


def write_again(path: str) -> Callable[[], None]:
    def attempt() -> None:
        with open(path, "rb") as file:
            before = file.read()
        descriptor = call("open", path.encode(), os.O_WRONLY)
        call("write", descriptor, before, len(before))

    return attempt


def opened_for_writing(path: str) -> Callable[[], None]:
    return lambda: KEPT.append(call("open", path.encode(), os.O_WRONLY))


def device() -> None:
    for name in MACHINES_DEVICES:
        descriptor = LIBC.open(f"/dev/{name}".encode(), os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        if descriptor >= 0:
            return
    raise PermissionError(", ".join(MACHINES_DEVICES))


def device_mode() -> None:
    call("chmod", b"/dev/null", 0o666)


# --- the user's terminal


def terminal_text() -> None:
    descriptor = call("open", place("terminal"), os.O_WRONLY | os.O_NOCTTY)
    call("write", descriptor, b"x", 1)


def terminal_echo(flags: int) -> Callable[[], None]:
    def attempt() -> None:
        descriptor = call("open", place("terminal"), flags | os.O_NOCTTY)
        modes = termios.tcgetattr(descriptor)
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(descriptor, termios.TCSANOW, modes)

    return attempt


# --- shared memory and semaphores


def shm_python() -> None:
    with open("/dev/shm/harm_count", "a") as file:
        file.write("x")


def shm_write_python() -> None:
    with open(f"/dev/shm/{FACTS['segment']}", "r+b") as file:
        file.write(b"x")


def shm_segment() -> None:
    segment = shared_memory.SharedMemory(FACTS["segment"])
    segment.buf[0] = 120
    segment.close()


def shm_unlink() -> None:
    call("shm_unlink", b"/" + FACTS["segment"].encode())


def shm_left() -> None:
    segment = shared_memory.SharedMemory("harm_left", create=True, size=4096)
    with contextlib.suppress(Exception):  # or Python would remove it at its end
        resource_tracker.unregister("/harm_left", "shared_memory")
    segment.close()


def shm_shell() -> None:
    subprocess.run(["sh", "-c", f"echo x >> /dev/shm/{FACTS['segment']}"], check=True)


def semaphore_posix() -> None:
    function = LIBC.sem_open
    function.restype = ctypes.c_void_p
    found = function(b"/" + FACTS["semaphore"].encode(), 0)
    if not found:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    call("sem_post", ctypes.c_void_p(found))


def semaphore_posix_left() -> None:
    function = LIBC.sem_open
    function.restype = ctypes.c_void_p
    if not function(b"/harm_left", os.O_CREAT, 0o600, 1):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def shm_system_v() -> None:
    found = call("shmget", FACTS["key"], 4096, SHARED)
    address = ctypes.c_void_p(call("shmat", found, None, 0))
    ctypes.memmove(address, b"x", 1)


def shm_system_v_left() -> None:
    call("shmget", FACTS["left_key"], 4096, IPC_CREAT | SHARED)


def semaphore_system_v_left() -> None:
    call("semget", FACTS["left_key"], 1, IPC_CREAT | SHARED)


def queue_system_v_left() -> None:
    call("msgget", FACTS["left_key"], IPC_CREAT | SHARED)


def queue_posix_left() -> None:
    library = ctypes.CDLL("librt.so.1", use_errno=True)
    if library.mq_open(b"/harm_left", os.O_CREAT | os.O_RDWR, 0o600, None) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


# --- network and sockets


def post() -> None:
    with socket.create_connection(("127.0.0.1", FACTS["tcp_port"]), timeout=5) as door:
        door.sendall(b"POST / HTTP/1.0\r\nContent-Length: 1\r\n\r\nx")


def post_six() -> None:
    with socket.socket(socket.AF_INET6) as door:
        door.settimeout(5)
        door.connect((f"::ffff:{'127.0.0.1'}", FACTS["tcp_port"]))
        door.sendall(b"POST")


def post_shell() -> None:
    code = f"exec 3<>/dev/tcp/127.0.0.1/{FACTS['tcp_port']} && echo POST >&3"
    subprocess.run(["bash", "-c", code], check=True)


def fast_open() -> None:
    with socket.socket() as door:
        door.sendto(b"POST", 0x20000000, ("127.0.0.1", FACTS["tcp_port"]))


def datagram() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        door.sendto(b"x", ("127.0.0.1", FACTS["udp_port"]))


def take_port() -> None:
    door = socket.create_server(("127.0.0.1", FACTS["free_port"]))
    KEPT.append(door)


def abstract() -> None:
    with socket.socket(socket.AF_UNIX) as door:
        door.connect(f"\0{FACTS['abstract']}")
        door.sendall(b"x")


def socket_file() -> None:
    with socket.socket(socket.AF_UNIX) as door:
        door.connect(FACTS["socket_file"])
        door.sendall(b"x")


def socket_file_linked() -> None:
    link = os.path.join(os.path.dirname(FACTS["go"]), "to-socket")
    os.symlink(FACTS["socket_file"], link)
    with socket.socket(socket.AF_UNIX) as door:
        door.connect(link)
        door.sendall(b"x")


def socket_file_datagram() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
        door.sendto(b"x", FACTS["datagram_file"])


def socket_file_message() -> None:
    door, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    door.sendmsg([b"x"], [], 0, FACTS["datagram_file"])


def socket_file_raw() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_RAW) as door:  # which is one of datagrams
        door.sendmsg([b"x"], [], 0, FACTS["datagram_file"])


def ring() -> None:
    parameters = ctypes.create_string_buffer(120)
    call("syscall", ctypes.c_long(425), 8, parameters)


# --- processes


def kill() -> None:
    os.kill(FACTS["pid"], signal.SIGUSR1)


def kill_shell() -> None:
    subprocess.run(["sh", "-c", f"kill -USR1 {FACTS['pid']}"], check=True)


def kill_group() -> None:
    os.killpg(FACTS["pid"], signal.SIGUSR1)


def kill_by_descriptor() -> None:
    descriptor = os.pidfd_open(FACTS["pid"])
    signal.pidfd_send_signal(descriptor, signal.SIGUSR1)


def signal_by_owner(command: int, owner: int | bytes) -> None:
    ours, theirs = socket.socketpair()
    fcntl.fcntl(ours, command, owner)
    fcntl.fcntl(ours, F_SETSIG, signal.SIGUSR1)
    fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC)
    theirs.send(b"x")


def kill_by_owner() -> None:
    signal_by_owner(fcntl.F_SETOWN, FACTS["pid"])


def kill_by_named_owner() -> None:
    signal_by_owner(F_SETOWN_EX, struct.pack("ii", 1, FACTS["pid"]))


def trace() -> None:
    call("ptrace", PTRACE_ATTACH, FACTS["pid"], None, None)


def write_memory() -> None:
    with open(f"/proc/{FACTS['pid']}/mem", "r+b", buffering=0) as file:
        file.seek(FACTS["address"])
        file.write(b"x")


def renice() -> None:
    os.setpriority(os.PRIO_PROCESS, FACTS["pid"], 7)


def renice_all() -> None:
    # Of a user who has none: what counts is whether it is let through.
    with contextlib.suppress(ProcessLookupError):
        call("setpriority", 2, FACTS["nobody"], 0)


def move_cores() -> None:
    os.sched_setaffinity(FACTS["pid"], {min(os.sched_getaffinity(0))})


def limit() -> None:
    import resource

    resource.prlimit(FACTS["pid"], resource.RLIMIT_NOFILE, (64, 64))


def oom_score() -> None:
    descriptor = call("open", f"/proc/{FACTS['pid']}/oom_score_adj".encode(), os.O_WRONLY)
    call("write", descriptor, b"900", 3)


def daemon() -> None:
    """Leave a process behind that left its parents twice, and one that forks as fast as it can.

    Where nothing stops that one, it ends by itself before the machine runs out of processes.
    """
    subprocess.run(["sh", "-c", f"(setsid sh -c 'sleep 600; : {FACTS['mark']}' &) &"], check=True)
    code = f"import os, time; '{FACTS['mark']}'\nend = time.monotonic() + 20\n"
    code += "while time.monotonic() < end:\n if os.fork(): os._exit(0)\n os.setsid()\n"
    subprocess.Popen([sys.executable, "-I", "-c", code], start_new_session=True)


ATTEMPTS: tuple[tuple[str, str, Callable[[], None]], ...] = (
    ("file", "appended to by Python", write_python),
    ("file", "appended to by a shell", write_shell),
    ("file", "appended to from C", write_c),
    ("file", "cut off from C", truncate_c),
    ("file", "rights changed by a shell", mode_shell),
    ("file", "rights changed through a descriptor", mode_descriptor),
    ("file", "times changed by a shell", times_shell),
    ("file", "an attribute added from C", attribute_c),
    ("file", "a new one by a shell", new_file_shell),
    ("file", "linked from C", link_c),
    ("file", "removed by a shell", remove_shell),
    ("file", "cut off by opening it to read", truncate_by_open(os.O_RDONLY)),
    ("file", "cut off by opening it for neither", truncate_by_open(NEITHER)),
    ("file", "cut off by openat2", truncate_by_newer_open),
    ("file", "appended to through other processes", through_processes),
    ("file", "rights changed by a race", mode_race),
    ("file", "its generation", generation),
    ("file", "locked", lock),
    ("file", "held by a lease", lease),
    ("machine", "a setting of the kernel", write_again("/proc/sys/kernel/core_pattern")),
    ("machine", "its name", write_again("/proc/sys/kernel/hostname")),
    ("machine", "its log", opened_for_writing("/dev/kmsg")),
    ("machine", "a setting in /sys", opened_for_writing("/sys/kernel/mm/ksm/run")),
    ("machine", "one of its devices", device),
    ("machine", "rights of a device", device_mode),
    ("terminal", "text", terminal_text),
    ("terminal", "echo, opened to read", terminal_echo(os.O_RDONLY)),
    ("terminal", "echo, opened for neither", terminal_echo(NEITHER)),
    ("memory", "a new file in /dev/shm by Python", shm_python),
    ("memory", "a segment changed by Python's open", shm_write_python),
    ("memory", "a segment changed through shm_open", shm_segment),
    ("memory", "a segment changed by a shell", shm_shell),
    ("memory", "a segment removed", shm_unlink),
    ("memory", "a segment left behind", shm_left),
    ("memory", "a semaphore raised", semaphore_posix),
    ("memory", "a semaphore left behind", semaphore_posix_left),
    ("memory", "a System V segment changed", shm_system_v),
    ("memory", "a System V segment left behind", shm_system_v_left),
    ("memory", "a System V semaphore left behind", semaphore_system_v_left),
    ("memory", "a System V queue left behind", queue_system_v_left),
    ("memory", "a POSIX queue left behind", queue_posix_left),
    ("network", "a POST over TCP", post),
    ("network", "the same over IPv6", post_six),
    ("network", "the same by a shell", post_shell),
    ("network", "the same while it connects", fast_open),
    ("network", "a datagram over UDP", datagram),
    ("port", "taken from a program that wants it", take_port),
    ("socket", "an abstract one", abstract),
    ("socket", "a file", socket_file),
    ("socket", "a file through a link", socket_file_linked),
    ("socket", "a file, by a datagram", socket_file_datagram),
    ("socket", "a file, by a message of a pair", socket_file_message),
    ("socket", "a file, by a raw socket", socket_file_raw),
    ("socket", "a ring of io_uring", ring),
    ("process", "a signal", kill),
    ("process", "a signal by a shell", kill_shell),
    ("process", "a signal to a group", kill_group),
    ("process", "a signal by a descriptor", kill_by_descriptor),
    ("process", "a signal by owning a socket", kill_by_owner),
    ("process", "the same, by F_SETOWN_EX", kill_by_named_owner),
    ("process", "traced", trace),
    ("process", "its memory written", write_memory),
    ("process", "its priority", renice),
    ("process", "the priority of all of the user's", renice_all),
    ("process", "its cores", move_cores),
    ("process", "its limits", limit),
    ("process", "its score when memory runs out", oom_score),
    ("process", "two that outlive the trial", daemon),
)
KEPT: list[object] = []
DONE = "done"


def main() -> None:
    said = {}
    for kind, what, attempt in ATTEMPTS:
        name = f"{kind}: {what}"
        if FACTS["only"] not in (None, name):
            continue
        try:
            attempt()
        except BaseException as error:
            said[name] = f"{type(error).__name__}: {error}"[:120]
        else:
            said[name] = DONE
    print(json.dumps(said), flush=True)
    until_s = time.monotonic() + FACTS["stays_s"]
    while time.monotonic() < until_s and not os.path.exists(FACTS["go"]):
        time.sleep(0.01)  # until the outside has looked


if __name__ == "__main__":
    main()
