"""Starts commands from a process that has torch in memory: seconds less for each.

A program of its own; `forked.py` sends it requests through a socket. For each request it forks

    server ─▶ keeper, which waits ─▶ `steptime run` ─▶ the script, with the guest in it

`steptime run` is the real program in a fork that has neither torch nor Steptime in `sys.modules`.
At its one door to the user's command it forks, where it would execute a new Python. The
script's process then does what a new interpreter does: signals, descriptors, environment,
`sys.path`, `sitecustomize` from `PYTHONPATH`, the script as `__main__`, the end of an interpreter.

Imports are replayed. torch is not in `sys.modules` until the script imports it; a finder gives its
specification, which others may wrap, as the guest's entry does; its execution puts back what the
server has executed. What torch imports with the first optimizer (dynamo) is replayed later
and module by module, so that a callback at one of them is called when it would be.

Some things differ from a new interpreter: memory is shared with the server, so that the first
write to a page faults; the command line in /proc and the hash seeds are the server's; the shim on
PATH is passed over; modules are not torn down after the exit functions. Tests of these, of
launching, and of anything that looks at a process from outside start a true process.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import importlib
import importlib.machinery
import importlib.util
import io
import json
import os
import runpy
import signal
import site
import socket
import sys
import tempfile
import threading
import types
from collections.abc import Mapping, Sequence
from typing import Any

FRESH = frozenset(sys.modules)
"""What a new interpreter and this program have loaded."""
PATH = tuple(sys.path[1:])
"""Where a new interpreter finds modules, less the script's own folder."""

TEMPORARY = tempfile.gettempdir()
SETTLED = ("OMP_", "MKL_", "OPENBLAS_", "KMP_", "GOMP_", "TORCH", "PYTORCH_", "CUDA_")
SETTLED += ("PYTHON", "LD_", "MALLOC_", "LC_", "LANG")
"""Variables that a library or an interpreter reads once, when it is loaded."""

IMPORTED = (
    *(
        "steptime.cli.main",
        "steptime.cli.run.run",
        "steptime.app.run.observe",
        "steptime.app.stored.load",
    ),
    *(
        "steptime.app.run.describe_run",
        "steptime.app.stored.report",
        "steptime.report.blocks.run.run_report",
    ),
    *("steptime.measure.fold.run_fold", "steptime.measure.series.run_series", "rich.console"),
)
"""What `steptime run` imports along its way, with all that these import."""

LAUNCHER = ("-m", "torch.distributed.run")

Modules = dict[str, types.ModuleType]


def settled(environment: Mapping[str, str]) -> dict[str, str]:
    """What is settled when torch is loaded; PYTHONPATH is not, the server puts it in place."""
    found = {name: value for name, value in environment.items() if name.startswith(SETTLED)}
    found.pop("PYTHONPATH", None)
    return found


class Replay:
    """Finds modules that the server has executed; executing them again puts them back.

    `first` came with torch, `later` with the first optimizer, which sets some `variables` of the
    environment, `others` with Steptime. `hidden` are names of modules that mean something else in
    their packages.
    """

    def __init__(
        self,
        *,
        first: Modules,
        later: Modules,
        others: Modules,
        hidden: Mapping[str, Any],
        variables: Mapping[str, str],
    ) -> None:
        self.first, self.later, self.others = dict(first), dict(later), dict(others)
        self.hidden = hidden
        self.variables = variables
        self.is_replaying = False

    def copy(self) -> Replay:
        """One with nothing put back."""
        return Replay(
            first=self.first,
            later=self.later,
            others=self.others,
            hidden=self.hidden,
            variables=self.variables,
        )

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        for modules in (self.first, self.later, self.others):
            if name in modules:
                return self._spec(name, modules[name])
        return None

    def _spec(self, name: str, module: types.ModuleType) -> importlib.machinery.ModuleSpec:
        origin = getattr(module, "__file__", None)
        spec = importlib.machinery.ModuleSpec(name, Loader(self, name, module), origin=origin)
        if hasattr(module, "__path__"):
            spec.submodule_search_locations = list(module.__path__)
        return spec

    def put_back(self, name: str) -> None:
        """Load what is loaded when this module has been executed."""
        if name == "torch":
            self.first = put_all_back(self.first)
        if name.startswith("steptime."):  # its values look each other up in `sys.modules`
            self.others = put_all_back(self.others)
        is_dynamo = name in self.later and name.startswith("torch.")
        for modules in (self.first, self.later, self.others):
            modules.pop(name, None)
        if is_dynamo and not self.is_replaying:
            self.is_replaying = True
            replayed = list(self.later)
            for other in replayed:
                importlib.import_module(other)
            for other in replayed:  # an import binds a module where its package has a function
                parent, _, child = other.rpartition(".")
                if other in self.hidden and parent in sys.modules:
                    setattr(sys.modules[parent], child, self.hidden[other])
            for variable, value in self.variables.items():
                os.environ[variable] = value.replace(TEMPORARY, tempfile.gettempdir())


class Loader:
    """Hands over a module that was executed before."""

    def __init__(self, replay: Replay, name: str, module: types.ModuleType) -> None:
        self.replay, self.name, self.module = replay, name, module
        self.spec = module.__spec__

    def create_module(self, spec: object) -> types.ModuleType:
        return self.module

    def exec_module(self, module: types.ModuleType) -> None:
        vars(module)["__spec__"] = self.spec  # some modules refuse to be assigned to
        self.replay.put_back(self.name)


def put_all_back(modules: Modules) -> Modules:
    """Put modules into `sys.modules` and into the packages that stayed; returns what is left."""
    for name, module in modules.items():
        sys.modules.setdefault(name, module)
        parent, _, child = name.rpartition(".")
        if parent in FRESH:
            setattr(sys.modules[parent], child, module)
    return {}


def take_away(known: frozenset[str]) -> Modules:
    """Take what was loaded since out of `sys.modules`, and out of the packages that stay."""
    taken = {name: module for name, module in sys.modules.items() if name not in known}
    for name, module in taken.items():
        del sys.modules[name]
        parent, _, child = name.rpartition(".")
        stays = parent in sys.modules and parent not in taken
        if stays and vars(sys.modules[parent]).get(child) is module:
            delattr(sys.modules[parent], child)
    return taken


def hidden_by_their_packages() -> dict[str, Any]:
    """What a package calls by the name of its module: `sympy.simplify` is a function there."""
    hidden = {}
    for name, module in sys.modules.items():
        parent, _, child = name.rpartition(".")
        bound = vars(sys.modules[parent]).get(child, module) if parent in sys.modules else module
        if bound is not module:
            hidden[name] = bound
    return hidden


def preload() -> Replay:
    """Import what the commands and the scripts import, and take it out of sight."""
    if importlib.util.find_spec("torch") is not None:
        import torch
    with_torch, before = frozenset(sys.modules), dict(os.environ)
    if "torch" in with_torch:
        torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    with_optimizer = frozenset(sys.modules)
    variables = {k: v for k, v in os.environ.items() if before.get(k) != v}
    for name in IMPORTED:
        importlib.import_module(name)
    hidden = hidden_by_their_packages()
    others = take_away(with_optimizer)
    later = take_away(with_torch)
    first = take_away(FRESH)
    assert len(os.listdir("/proc/self/task")) == 1, "a fork would lose threads"
    return Replay(first=first, later=later, others=others, hidden=hidden, variables=variables)


# -- one command


def run_observed(request: Mapping[str, Any], replay: Replay) -> None:
    """Be `steptime run`, in a session of its own, whose command is a fork of it."""
    close_descriptors()
    registered: list[Any] = []
    register = atexit.register

    def note(function: Any, *args: Any, **kwargs: Any) -> Any:
        registered.append(function)
        return register(function, *args, **kwargs)

    atexit.register = note
    sys.path[:] = ["", *PATH]
    finder = replay.copy()
    sys.meta_path.insert(0, finder)
    from steptime.launch import user_command

    truly_execute, here = user_command._execute, settled(os.environ)

    def execute(
        path: str, argv: Sequence[str], environment: Mapping[str, str], signals: Any
    ) -> None:
        if not request["forks_script"] or settled(environment) != here:  # a recipe's allocator, say
            truly_execute(path, tuple(argv), environment, signals)
        for number, disposition in signals.dispositions.items():
            signal.signal(number, disposition)
        signal.pthread_sigmask(signal.SIG_SETMASK, signals.mask)
        atexit.register = register
        for function in registered:
            atexit.unregister(function)
        sys.meta_path.remove(finder)
        be_script(argv, environment, replay)

    user_command._execute = execute
    be_main(
        lambda: runpy.run_module("steptime", run_name="__main__", alter_sys=True), request["argv"]
    )


def ranks_of(argv: Sequence[str]) -> int | None:
    """How many ranks the command starts with torchrun, on one node; None if it starts none so."""
    if os.path.basename(argv[0]) != "torchrun" and tuple(argv[1:3]) != LAUNCHER:
        return None
    words = " ".join(argv).replace("_", "-").replace("=", " ").split()
    return int(words[words.index("--nproc-per-node") + 1])


def script_in(argv: Sequence[str]) -> int | None:
    """Where the script stands in a command of Python's or torchrun's; None if it has none."""
    if ranks_of(argv) is None:
        return 1 if len(argv) > 1 and argv[1].endswith(".py") else None
    return next((n for n, word in enumerate(argv) if word.endswith(".py")), None)


def be_launcher(argv: Sequence[str], environment: Mapping[str, str], replay: Replay) -> None:
    """Do what torchrun does on one node: start each rank, and end the others with one that fails.

    The ranks are forks, and the first of them keeps the store that torchrun would keep.
    """
    close_descriptors()
    reset_signals()
    num_ranks, script = ranks_of(argv) or 0, script_in(argv)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {
        **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"), str(num_ranks)),
        "GROUP_RANK": "0",
        **dict.fromkeys(("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"), "0"),
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        "MASTER_ADDR": "127.0.0.1",
        **dict.fromkeys(("MASTER_PORT", "TORCHELASTIC_RUN_ID"), str(port)),
    }
    ranks = set()
    for rank in range(num_ranks):
        own = dict.fromkeys(("RANK", "LOCAL_RANK", "ROLE_RANK"), str(rank))
        pid = os.fork()
        if pid == 0:
            be_script([sys.executable, *argv[script:]], {**environment, **shared, **own}, replay)
        ranks.add(pid)
    has_failed = False
    while ranks:
        pid, status = os.wait()
        ranks.discard(pid)
        if status and not has_failed:
            has_failed = True
            for other in ranks:
                os.kill(other, signal.SIGTERM)
    os._exit(int(has_failed))


def be_script(argv: Sequence[str], environment: Mapping[str, str], replay: Replay) -> None:
    """Be a new interpreter that runs a script; argv is `python script [words]`, or a launcher's."""
    if ranks_of(argv) is not None:
        be_launcher(argv, environment, replay)
    close_descriptors()
    reset_signals()
    os.environ.clear()
    os.environ.update(environment)
    for name in sys.modules.keys() - FRESH:
        del sys.modules[name]
    script, finder = argv[1], replay.copy()
    finder.others.clear()
    searched = [p for p in environment.get("PYTHONPATH", "").split(os.pathsep) if p]
    sys.path[:] = [*searched, *PATH]
    sys.orig_argv[:] = argv
    sys.meta_path.insert(0, finder)
    site.execsitecustomize()
    sys.path.insert(0, os.path.dirname(os.path.realpath(script)))
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=script, __builtins__=__builtins__, __spec__=None)
    sys.modules["__main__"] = main

    def execute() -> None:
        with io.open_code(script) as file:
            code = compile(file.read(), script, "exec", dont_inherit=True)  # not our annotations
        exec(code, main.__dict__)

    be_main(execute, argv[1:])


def be_main(execute: Any, argv: Sequence[str]) -> None:
    """Run a main program and end as an interpreter ends."""
    sys.argv[:] = argv
    code: object = 0
    try:
        execute()
    except SystemExit as error:
        code = error.code
    except BaseException:
        kind, value, trace = sys.exc_info()
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.last_type, sys.last_value, sys.last_traceback = kind, value, trace
        sys.last_exc = value  # since Python 3.12
        sys.excepthook(kind, value, value.with_traceback(trace))
        code = 1
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    leave(code or 0)


def leave(code: int) -> None:
    """End as an interpreter does, but for the last modules: to free torch takes a second."""
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code & 0xFF)


def close_descriptors() -> None:
    """Let go of what an execution closes; a number stays taken, as somebody may close it again."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            if number > 2 and fcntl.fcntl(number, fcntl.F_GETFD) & fcntl.FD_CLOEXEC:
                os.dup2(nothing, number, inheritable=False)


def reset_signals() -> None:
    """What Python does with signals at its start, after what an execution does with them."""
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)) and number != signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


# -- the server


def keep(connection: socket.socket, request: Mapping[str, Any], replay: Replay) -> None:
    """Fork the command, tell its process id, wait for it, tell how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["environment"])
        tempfile.tempdir = None  # it was asked for in another environment
        if request["is_observed"]:
            run_observed(request, replay)
        else:
            be_script(request["argv"], request["environment"], replay)
    for stream in range(3):
        os.close(stream)
    with connection:
        connection.sendall(f"{pid}\n".encode())
        _, status, used = os.wait4(pid, 0)
        code, cpu_s = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
        connection.sendall(f"{code} {cpu_s}\n".encode())
    os._exit(0)


def serve(server: socket.socket, replay: Replay) -> None:
    """Take requests for as long as the tests live."""
    tests = os.getppid()
    server.settimeout(2)
    while os.getppid() == tests:
        try:
            connection, _ = server.accept()
        except TimeoutError:
            continue
        connection.setblocking(True)
        data, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 3)
        if os.fork() == 0:
            server.close()
            for stream, descriptor in enumerate(descriptors):
                os.dup2(descriptor, stream)
                os.close(descriptor)
            keep(connection, json.loads(data), replay)
        for descriptor in descriptors:
            os.close(descriptor)
        connection.close()


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the server waits for no keeper
    replay = preload()
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"{sys.argv[1]}.new")
    server.listen()
    os.rename(f"{sys.argv[1]}.new", sys.argv[1])  # who sees it can connect
    serve(server, replay)


if __name__ == "__main__":
    main()
