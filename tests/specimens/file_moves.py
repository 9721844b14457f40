"""Does what scripts do with files, also what fails, and prints what each step showed.

    file_moves.py FOLDER

Run as it is or redirected it prints the same, but where a path lies.
"""

import glob
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

STEPS = []


def step(function):
    STEPS.append(function)
    return function


def read(path):
    with open(path) as file:
        return file.read()


def write(path, text, mode="w"):
    with open(path, mode) as file:
        file.write(text)


def prepare(folder):
    """What is there before."""
    here = pathlib.Path(folder)
    (here / "data" / "deep").mkdir(parents=True)
    for name in ("a", "b", "data/c", "data/deep/d"):
        (here / name).write_text(f"old {name}")
    (here / "link").symlink_to("a")
    (here / "folder-link").symlink_to("data")
    (here / "read-only").write_text("old")
    (here / "empty").mkdir()


@step
def write_and_read_back():
    write("a", "new")
    return read("a"), os.stat("a").st_size, os.path.getsize("b")


@step
def append():
    write("b", " more", "a")
    return read("b")


@step
def exclusive():
    write("fresh", "1", "x")
    write("fresh", "2", "x")


@step
def update_what_is_not_there():
    write("nowhere", "1", "r+")


@step
def read_what_is_not_there():
    return read("nowhere/at/all")


@step
def write_where_no_folder_is():
    write("nowhere/at/all", "x")


@step
def write_into_a_folder():
    write("data", "x")


@step
def list_and_walk():
    os.makedirs("out/run-1")
    write("out/run-1/log", "x")
    write("data/new", "x")
    walked = sorted((root, sorted(dirs), sorted(files)) for root, dirs, files in os.walk("."))
    return sorted(os.listdir(".")), walked, sorted(glob.glob("**/*", recursive=True))


@step
def make_what_is_there():
    os.makedirs("data", exist_ok=True)
    os.mkdir("data")


@step
def remove_and_make_again():
    os.remove("data/c")
    gone = os.path.exists("data/c"), sorted(os.listdir("data"))
    write("data/c", "again")
    return gone, read("data/c")


@step
def remove_twice():
    os.remove("data/c")
    os.remove("data/c")


@step
def remove_a_full_folder():
    os.rmdir("data")


@step
def remove_a_folder_with_remove():
    os.remove("empty")


@step
def remove_an_empty_folder():
    os.rmdir("empty")
    return os.path.isdir("empty")


@step
def rename_a_file():
    os.rename("b", "b2")
    return os.path.exists("b"), read("b2")


@step
def replace_a_file():
    write("b2.tmp", "whole")
    os.replace("b2.tmp", "b2")
    return read("b2"), os.path.exists("b2.tmp")


@step
def rename_what_is_not_there():
    os.rename("nowhere", "somewhere")


@step
def rename_a_folder():
    os.rename("data", "data2")
    return os.path.exists("data"), sorted(os.listdir("data2")), read("data2/deep/d")


@step
def rename_over_a_full_folder():
    os.rename("out", "data2")


@step
def a_folder_made_again_is_empty():
    os.mkdir("data")
    return os.listdir("data"), os.path.exists("data/deep")


@step
def remove_a_tree():
    shutil.rmtree("data2")
    return os.path.exists("data2"), os.path.exists("data2/deep/d")


@step
def through_a_link():
    write("link", "through")
    return read("a"), read("link"), os.readlink("link"), os.path.islink("link")


@step
def make_links():
    os.symlink(os.path.abspath("out"), "latest")
    os.symlink("fresh", "soft")
    os.link("fresh", "hard")
    write("hard", "by the hard one")
    return read("soft"), sorted(os.listdir("latest")), read("latest/run-1/log")


@step
def link_over_something():
    os.symlink("a", "fresh")


@step
def modes_and_times():
    os.chmod("a", 0o640)
    os.utime("a", (5, 5))
    facts = os.stat("a")
    return oct(facts.st_mode), facts.st_mtime, read("a")


@step
def mode_of_nothing():
    os.chmod("nowhere", 0o600)


@step
def truncate():
    os.truncate("a", 2)
    return read("a")


@step
def pathlib_too():
    path = pathlib.Path("out") / "by" / "path.txt"
    path.parent.mkdir(parents=True)
    path.write_text("x")
    path.rename(path.with_suffix(".bak"))
    path.touch()
    found = sorted(str(p) for p in pathlib.Path("out").rglob("*"))
    path.unlink()
    path.unlink(missing_ok=True)
    return found, path.exists(), [p.name for p in sorted(pathlib.Path("out").iterdir())]


@step
def copies():
    shutil.copy2("fresh", "copy")
    shutil.copytree("out", "out-copy")
    shutil.move("copy", "out-copy/moved")
    return read("out-copy/moved"), sorted(os.listdir("out-copy"))


@step
def scan():
    with os.scandir("out-copy") as entries:
        found = sorted((e.name, e.path, e.is_dir(), e.is_file(), e.is_symlink()) for e in entries)
    return found, sorted(os.listdir(b"out-copy"))


@step
def change_folder():
    os.makedirs("new/deep")
    os.chdir("new")
    write("here", "x")
    found = os.path.basename(os.getcwd()), read("here"), read("../fresh"), os.listdir("deep")
    os.chdir("..")
    return found, os.path.exists("new/here")


@step
def by_descriptor():
    folder = os.open("out", os.O_RDONLY)
    try:
        descriptor = os.open("at", os.O_CREAT | os.O_WRONLY, dir_fd=folder)
        os.write(descriptor, b"x")
        os.close(descriptor)
    finally:
        os.close(folder)
    return read("out/at")


@step
def temporary_files():
    with tempfile.NamedTemporaryFile("w", dir=".", delete=False) as file:
        file.write("x")
    found = read(file.name)
    os.replace(file.name, "from-temporary")
    with tempfile.TemporaryDirectory() as folder:
        write(os.path.join(folder, "x"), "x")
        shutil.move(os.path.join(folder, "x"), "from-elsewhere")
    return found, read("from-temporary"), read("from-elsewhere")


@step
def a_child_sees_it():
    code = "import sys; print(open('fresh').read(), sorted(__import__('os').listdir('out')))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout


@step
def all_that_is_left():
    found = []
    for root, folders, files in os.walk("."):
        found += [os.path.join(root, name) for name in folders]
        found += [(os.path.join(root, name), read(os.path.join(root, name))) for name in files]
    return sorted(map(str, found))


def main(folder):
    os.chdir(folder)
    for act in STEPS:
        try:
            result = act()
        except OSError as error:
            result = [type(error).__name__, error.errno, error.filename, error.filename2]
        print(act.__name__, json.dumps(result, default=str), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
