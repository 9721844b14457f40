"""Trains, and between the steps does what scripts do to their own process.

After each act some steps, a pause long enough for whatever writes now and then, and one step
more. Says of each act which updates followed it, and whether the act itself came out right.
"""

import builtins
import gc
import json
import logging
import os
import resource
import signal
import sys
import threading
import time
import warnings

import torch

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
home, told = os.getcwd(), {}
real_sleep, real_open = time.sleep, builtins.open


class Count:
    updates = 0


def steps(count):
    for _ in range(count):
        loss = model(torch.randn(8, 4)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        Count.updates += 1
    return loss.item()


def nothing():
    """What a script does that does nothing of the kind."""


def change_the_directory():
    os.mkdir("elsewhere")
    os.chdir("elsewhere")
    os.rmdir(os.path.join(home, "elsewhere"))


def close_all_descriptors():
    os.closerange(3, 256)
    with real_open(os.path.join(home, "checkpoint"), "wb", buffering=0) as file:
        for _ in range(40):
            file.write(b"checkpoint ")
            steps(1)
            real_sleep(0.02)
    with real_open(os.path.join(home, "checkpoint"), "rb") as file:
        return file.read() == b"checkpoint " * 40


def empty_the_environment():
    os.environ.clear()


def change_the_environment():
    os.environ |= {"STEPTIME_RUN": "/nowhere", "STEPTIME_GUEST": "/nowhere", "RANK": "7"}


def fork():
    child = os.fork()
    if child == 0:
        os._exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


def fork_from_a_thread_while_others_step():
    children = []

    def work():
        for _ in range(5):
            child = os.fork()
            if child == 0:
                os._exit(0)
            children.append(os.waitpid(child, 0)[1])

    thread = threading.Thread(target=work)
    thread.start()
    steps(60)
    thread.join()
    return children == [0] * 5


def redirect_stdout():
    saved = os.dup(1)
    with real_open(os.path.join(home, "stdout"), "wb") as file:
        os.dup2(file.fileno(), 1)
    steps(3)
    os.write(1, b"redirected\n")
    os.dup2(saved, 1)
    os.close(saved)
    with real_open(os.path.join(home, "stdout"), "rb") as file:
        return file.read() == b"redirected\n"


def drop_the_streams():
    sys.stdout = sys.stderr = sys.stdin = None


def turn_the_clock():
    time.time = lambda: -1e9
    time.monotonic = time.perf_counter = lambda: 0.0
    time.perf_counter_ns = time.monotonic_ns = time.time_ns = lambda: 0
    time.process_time = time.thread_time = lambda: 0.0
    time.process_time_ns = time.thread_time_ns = lambda: 0
    time.sleep = lambda seconds: None


def break_the_standard_library():
    def broken(*args, **kwargs):
        raise RuntimeError("broken by the script")

    json.dumps = json.loads = logging.getLogger = warnings.warn = broken
    builtins.open = broken
    os.path.join, os.path.exists = (lambda *parts: "/".join(parts)), broken


def run_out_of_descriptors():
    opened = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 4096))
    try:
        while True:
            opened.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    steps(3)
    real_sleep(0.25)
    steps(3)  # nothing can be written now
    for descriptor in opened:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 4096))
    return True


def reach_the_file_size_limit():
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    steps(3)
    real_sleep(0.25)
    steps(3)  # our file is longer than that
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    return True


def be_interrupted():
    seen = []
    signal.signal(signal.SIGALRM, lambda number, frame: seen.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    steps(200)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return bool(seen)


def leave_a_step_by_an_exception():
    def closure():
        raise ValueError("in a closure")

    caught = 0
    for act in (
        lambda: optimizer.step(closure),
        lambda: model(torch.randn(8, 5)),
        lambda: torch.zeros(2, requires_grad=True).backward(),
        lambda: torch.save(model, "/nowhere/at/all"),
    ):
        try:
            act()
        except (ValueError, RuntimeError):
            caught += 1
    return caught == 4


def meddle_with_the_collector():
    gc.callbacks.clear()
    gc.freeze()
    gc.disable()


def hide_the_modules():
    for name in [name for name in sys.modules if "steptime" in name or name == "sitecustomize"]:
        del sys.modules[name]
    sys.meta_path[:] = [finder for finder in sys.meta_path if isinstance(finder, type)]
    import wave  # noqa: F401


def replace_hooks():
    sys.setrecursionlimit(200)
    sys.excepthook = lambda *error: os.write(1, f"caught by the script: {error[1]}\n".encode())
    threading.excepthook = sys.unraisablehook = lambda *args: None


ACTS = (
    nothing,
    change_the_directory,
    close_all_descriptors,
    empty_the_environment,
    change_the_environment,
    fork,
    fork_from_a_thread_while_others_step,
    redirect_stdout,
    run_out_of_descriptors,
    reach_the_file_size_limit,
    be_interrupted,
    leave_a_step_by_an_exception,
    meddle_with_the_collector,
    hide_the_modules,
    drop_the_streams,
    turn_the_clock,
    break_the_standard_library,
    replace_hooks,
)

if __name__ == "__main__":
    dumps = json.dumps
    for act in ACTS:
        steps(1)
        is_right = act() is not False
        first = Count.updates
        steps(3)
        real_sleep(0.25)
        steps(1)
        told[act.__name__] = [first, Count.updates, is_right]
    loss = float(steps(1)).hex()
    with real_open(f"{home}/told.json", "w") as file:
        file.write(dumps({"acts": told, "num_updates": Count.updates, "loss": loss}))
    raise RuntimeError("the end")
