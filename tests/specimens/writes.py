"""Writes in every way there is, each over something that was there before.

    writes.py FOLDER [--hold]

Prints one line a way: its name, and `ok` or what went wrong. With --hold it says `done` at the end
and sleeps, for whoever kills it.
"""

import contextlib
import ctypes
import json
import mmap
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time

try:
    import torch
except ImportError:
    torch = None
try:
    import numpy as np
except ImportError:
    np = None

WAYS = {}


def way(function):
    WAYS[function.__name__] = function
    return function


@way
def open_w(old):
    with open(old, "w") as file:
        file.write("new")


@way
def open_a(old):
    with open(old, "a") as file:
        file.write("more")


@way
def open_update(old):
    with open(old, "r+b") as file:
        file.seek(2)
        file.write(b"XX")


@way
def open_x(old):
    with open(f"{old}.x", "x") as file:
        file.write("new")


@way
def os_open(old):
    descriptor = os.open(old, os.O_RDWR | os.O_TRUNC)
    os.write(descriptor, b"new")
    os.close(descriptor)


@way
def pathlib_write(old):
    pathlib.Path(old).write_bytes(b"new")
    pathlib.Path(f"{old}.touched").touch()


@way
def copy_over(old):
    shutil.copy(__file__, old)


@way
def move_over(old):
    with open(f"{old}.tmp", "w") as file:
        file.write("new")
    shutil.move(f"{old}.tmp", old)


@way
def rename(old):
    os.rename(old, f"{old}.renamed")
    os.replace(f"{old}.renamed", f"{old}.again")


@way
def truncate(old):
    os.truncate(old, 1)


@way
def unlink(old):
    os.unlink(old)


@way
def chmod(old):
    os.chmod(old, 0o600)


@way
def utime(old):
    os.utime(old, (1, 1))


@way
def folders(old):
    os.makedirs(f"{old}.d/a/b")
    with open(f"{old}.d/a/b/c", "w") as file:
        file.write("new")
    shutil.rmtree(f"{old}.d/a")
    os.rmdir(f"{old}.d")


@way
def links(old):
    os.symlink(old, f"{old}.soft")
    with open(f"{old}.soft", "a") as file:
        file.write("through")
    os.link(old, f"{old}.hard")
    with open(f"{old}.hard", "a") as file:
        file.write("through")


@way
def sqlite(old):
    database = sqlite3.connect(f"{old}.db")
    with database:
        database.execute("create table if not exists t (x)")
        database.execute("insert into t values (1)")
    database.close()


@way
def memory_map(old):
    with open(old, "r+b") as file, mmap.mmap(file.fileno(), 0) as view:
        view[0:3] = b"NEW"
        view.flush()


@way
def shell(old):
    subprocess.run(["sh", "-c", f"echo new > '{old}'; touch '{old}.sh'"], check=True)


@way
def c_library(old):
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.open(os.fsencode(old), os.O_WRONLY | os.O_TRUNC)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "open of libc")
    libc.write(descriptor, b"new", 3)
    libc.close(descriptor)


@way
def logging_by_json(old):
    with open(f"{old}.jsonl", "a", buffering=1) as file:
        file.writelines(json.dumps({"step": step}) + "\n" for step in range(3))


@way
def daemon(old):
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        if os.fork() == 0:
            with contextlib.suppress(OSError), open(old, "w") as file:
                file.write("new")
            os.write(writer, b".")
            time.sleep(600)
        os._exit(0)
    os.waitpid(pid, 0)
    os.read(reader, 1)


@way
def temporary(old):
    with tempfile.NamedTemporaryFile(dir=os.path.dirname(old), delete=False) as file:
        file.write(b"new")
    tempfile.mkdtemp()


@way
def relative(old):
    os.chdir(os.path.dirname(old))
    with open(os.path.basename(old), "w") as file:
        file.write("new")
    folder = os.open(".", os.O_RDONLY)
    descriptor = os.open(os.path.basename(old) + ".at", os.O_CREAT | os.O_WRONLY, dir_fd=folder)
    os.write(descriptor, b"new")


def torch_ways():
    @way
    def torch_save(old):
        torch.save({"a": torch.ones(3)}, old)

    @way
    def torch_save_legacy(old):
        torch.save({"a": torch.ones(3)}, old, _use_new_zipfile_serialization=False)

    @way
    def torch_save_and_load(old):
        torch.save({"a": torch.ones(3)}, f"{old}.pt")
        assert torch.equal(torch.load(f"{old}.pt")["a"], torch.ones(3))

    @way
    def torch_script(old):
        torch.jit.save(torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2)), old)

    @way
    def torch_from_file(old):
        torch.from_file(old, shared=True, size=4, dtype=torch.uint8).fill_(7)

    @way
    def profiler_trace(old):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            torch.ones(3).sum()
        profile.export_chrome_trace(f"{old}.json")

    @way
    def file_store(old):
        store = torch.distributed.FileStore(f"{old}.store", 1)
        store.set("key", "value")


def numpy_ways():
    @way
    def numpy_save(old):
        np.save(f"{old}.npy", np.ones(3))
        np.savez(f"{old}.npz", a=np.ones(3))

    @way
    def numpy_map(old):
        view = np.memmap(old, dtype=np.uint8, mode="r+")
        view[:] = 7
        view.flush()

    @way
    def numpy_tofile(old):
        np.ones(3).tofile(old)


def main(folder, *options):
    if torch is not None:
        torch_ways()
    if np is not None:
        numpy_ways()
    for name, write in sorted(WAYS.items()):
        try:
            write(os.path.join(folder, name))
            result = "ok"
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
        print(name, result, flush=True)
    if "--hold" in options:
        print("done", flush=True)
        time.sleep(600)


def prepare(folder):
    """Put something there for each way to write over."""
    names = [*WAYS, "torch_save", "torch_save_legacy", "torch_script", "torch_from_file"]
    for name in [*names, "numpy_map", "numpy_tofile", "untouched"]:
        (pathlib.Path(folder) / name).write_text(f"as it was: {name}")
    database = sqlite3.connect(pathlib.Path(folder) / "sqlite.db")
    with database:
        database.execute("create table t (x)")
    database.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
