"""The guest gets into every Python process of a command, however it was started, and no further."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest

from end_to_end.harness import (
    SCRIPTS,
    Done,
    by_name,
    environment,
    needs_linux,
    needs_torch,
    rows,
    run_both_truly,
    run_folder,
    run_observed,
    run_truly,
    updates,
)
from steptime.launch.user_command import SITE

pytestmark = needs_linux


def write(path: Path, text: str, *, mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def processes(folder: Path, kind: str) -> list[dict[str, object]]:
    return [line for line in rows(run_folder(folder) / "processes.jsonl") if line["k"] == kind]


def streams(folder: Path) -> dict[int, Path]:
    """The stream of each process that stepped."""
    return {rows(path)[0]["pid"]: path for path in run_folder(folder).glob("rank-*.jsonl")}


# -- one process after another: started in all ways at once, to import torch side by side

WAYS = ("file", "module", "console", "relative", "added", "shadowed")

TRAIN_ALL = """\
python {scripts}/tiny.py file &
python -m pkg module &
./tool console &
PYTHONPATH=. python -m pkg relative &
(export PYTHONPATH=lib:$PYTHONPATH; exec python -m pkg added) &
(cd shadow; exec python train.py) &
wait
"""

CONSOLE = f"""\
#!{sys.executable}
import os, sys
import steptime
sys.path.append('.')
from pkg.__main__ import train
print('console', os.getpid(), train(), steptime.__version__)
"""

SHADOWED = """\
import importlib.util, os
import hooks, guest, record, steptime, tiny_copy
assert {hooks.mine, guest.mine, record.mine, steptime.mine} == {True}
for _ in range(3):
    assert importlib.util.find_spec("torch").name == "torch"
    assert importlib.util.find_spec("nothing_of_this_name") is None
print("shadowed", os.getpid(), tiny_copy.train())
"""


@pytest.fixture(scope="module")
def all_ways(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """A shell script that starts Pythons in many ways, under `steptime run`."""
    folder = tmp_path_factory.mktemp("ways")
    tiny = (SCRIPTS / "tiny.py").read_text()
    lazy = tiny.replace("import torch\n", "").replace(
        "    torch.set", "    import torch\n\n    torch.set"
    )
    write(folder / "pkg" / "__init__.py", "")
    write(folder / "pkg" / "__main__.py", tiny)
    for name in ("hooks", "guest", "record", "steptime"):
        write(folder / "shadow" / f"{name}.py", "mine = True\n")
    write(folder / "shadow" / "train.py", SHADOWED)
    write(folder / "shadow" / "tiny_copy.py", lazy)
    write(folder / "tool", CONSOLE, mode=0o755)
    write(folder / "train.sh", TRAIN_ALL.format(scripts=SCRIPTS))
    return folder, run_observed(folder, "bash", "train.sh")


@needs_torch
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.slow("six processes import torch side by side")
@pytest.mark.core
def test_a_process_started_this_way_is_watched(all_ways: tuple[Path, Done], way: str) -> None:
    folder, done = all_ways
    said = {line.split()[0]: line.split() for line in done.stdout.decode().splitlines()}
    assert way in said, done.stderr.decode()
    assert len(updates(streams(folder)[int(said[way][1])])) == 5


@needs_torch
def test_they_all_train_alike(all_ways: tuple[Path, Done]) -> None:
    _, done = all_ways
    said = [line.split() for line in done.stdout.decode().splitlines()]
    assert len(said) == len(WAYS)
    assert len({words[2] for words in said}) == 1
    assert "guest_failures" not in done.notes


# -- several processes


def launched(folder: Path, *command: str | Path) -> tuple[Done, dict[str, list[str]]]:
    """What a command said under `steptime run`, by the first word of each line."""
    done = run_truly(folder, *command)
    assert done.exit_code == 0, done.stderr.decode()
    return done, {line.split()[0]: line.split() for line in done.stdout.decode().splitlines()}


@needs_torch
@pytest.mark.slow("torchrun and two ranks import torch")
@pytest.mark.core
def test_torchrun_has_its_ranks_and_is_none_itself(tmp_path: Path) -> None:
    command = ("torchrun", "--standalone", "--nproc-per-node", "2", SCRIPTS / "launched.py")
    done, said = launched(tmp_path, *command)
    assert {path.name for path in streams(tmp_path).values()} == {"rank-0.jsonl", "rank-1.jsonl"}
    for rank in ("0", "1"):
        head = rows(run_folder(tmp_path) / f"rank-{rank}.jsonl")[0]
        assert head["pid"] == int(said[rank][1])
        assert (head["rank_source"], head["world_size"]) == ("distributed", 2)
        assert head["local_rank"] == int(rank)
    assert (done.data["num_ranks"], done.data["num_steps"]) == (2, 6)
    assert done.data["phases"]["communication"] is not None
    assert len(processes(tmp_path, "torch")) == 3


@needs_torch
@pytest.mark.skipif(find_spec("accelerate") is None, reason="accelerate is not installed")
@pytest.mark.slow("accelerate imports torch twice, and much more")
@pytest.mark.core
def test_accelerate_launch_is_watched(tmp_path: Path) -> None:
    # More than one process on CPU would need an MPI.
    options = "--cpu --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no"
    command = ("accelerate", "launch", *options.split(), SCRIPTS / "accelerated.py")
    done, said = launched(tmp_path, *command)
    assert list(said) == ["0"]
    assert (done.data["num_ranks"], done.data["num_steps"]) == (1, 16)
    assert done.data["phases"]["gradient_processing"]["fraction"] > 0


@needs_torch
@pytest.mark.slow("three processes import torch")
def test_spawned_processes_that_share_nothing_are_trainings_of_their_own(tmp_path: Path) -> None:
    done, said = launched(tmp_path, "python", SCRIPTS / "children.py", "spawn")
    counts = {pid: len(updates(path)) for pid, path in streams(tmp_path).items()}
    assert counts == {int(said["0"][1]): 5, int(said["1"][1]): 6}
    found = [one["measurement"] for one in done.data["trainings"]]
    assert sorted(one["num_steps"] for one in found) == [5, 6]
    assert {one["num_ranks"] for one in found} == {1}


@needs_torch
@pytest.mark.slow("three processes train")
@pytest.mark.core
def test_forked_children_that_train_are_ranks_of_their_own(tmp_path: Path) -> None:
    done, said = launched(tmp_path, "python", SCRIPTS / "children.py", "hogwild")
    counts = {pid: len(updates(path)) for pid, path in streams(tmp_path).items()}
    assert counts == {int(said["0"][1]): 4, int(said["1"][1]): 6, int(said["2"][1]): 7}
    assert "ended_abruptly" not in done.notes
    # The parent trains a model of its own, the children train one in shared memory together.
    found = [one["measurement"] for one in done.data["trainings"]]
    assert [(one["num_ranks"], one["num_steps"]) for one in found] == [(1, 4), (2, 7)]


@needs_torch
@pytest.mark.parametrize(
    "context",
    ["fork", pytest.param("spawn", marks=pytest.mark.slow("spawned workers import torch"))],
)
def test_loader_workers_are_no_ranks_and_leave_their_sums(tmp_path: Path, context: str) -> None:
    done, said = launched(tmp_path, "python", SCRIPTS / "children.py", "workers", context)
    ((pid, words),) = said.items()
    num_batches = int(words[1])
    assert set(streams(tmp_path)) == {int(pid)}
    files = {path.name for path in run_folder(tmp_path).glob("worker-*.jsonl")}
    assert files == {f"worker-{pid}-0.jsonl", f"worker-{pid}-1.jsonl"}
    assert (done.data["num_ranks"], done.data["num_steps"]) == (1, num_batches)
    assert done.data["workers"]["num_batches"] == num_batches
    assert len(processes(tmp_path, "exit")) == 1
    if context == "fork":  # where a generator in a worker is closed, as it is without us
        assert {path.name for path in tmp_path.glob("closed-*")} == {"closed-0", "closed-1"}


# -- another environment than the script's


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has Steptime with what it needs, and no torch."""
    folder = tmp_path_factory.mktemp("elsewhere") / "env"
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in ("steptime", "rich", "psutil", "markdown_it", "mdurl", "msgspec", "pygments"):
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            (site / name).symlink_to(spec.submodule_search_locations[0])
    return folder / "bin" / "python"


@needs_torch
def test_steptime_may_live_in_another_environment_than_the_script(
    tmp_path: Path, elsewhere: Path
) -> None:
    probe = subprocess.run([elsewhere, "-c", "import torch"], capture_output=True)
    assert b"No module named 'torch'" in probe.stderr
    script = write(tmp_path / "train.py", (SCRIPTS / "tiny.py").read_text())
    done = subprocess.run(
        [elsewhere, "-m", "steptime", "run", "--json", "result.json", "--", "python", script],
        cwd=tmp_path,
        env=environment(tmp_path),  # in which `python` is the tests' own, with torch
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()
    data = by_name(json.loads((tmp_path / "result.json").read_text())["data"])
    assert (data["num_steps"], data["num_ranks"]) == (5, 1)


# -- what is already there

SHOW = """\
import sys
print([sys.path, sys.flags, sys.argv, sys.orig_argv[1:], __file__, sys.prefix, sys.executable])
"""


def test_a_sitecustomize_that_is_already_there_runs_too(tmp_path: Path) -> None:
    write(tmp_path / "site" / "sitecustomize.py", "theirs = True\nprint('theirs ran')\n")
    script = write(tmp_path / "x.py", "import sitecustomize; print(sitecustomize.theirs)\n")
    bare, observed = run_both_truly(tmp_path, "python", script, PYTHONPATH=str(tmp_path / "site"))
    assert observed.stdout == bare.stdout == b"theirs ran\nTrue\n"
    assert len(processes(tmp_path / "observed", "start")) == 1


@pytest.mark.parametrize(
    "fault",
    ["raise ValueError('a fault of theirs')\n", "import nothing_of_this_name\n", "def broken(:\n"],
)
def test_one_that_fails_is_reported_as_without_us(tmp_path: Path, fault: str) -> None:
    write(tmp_path / "site" / "sitecustomize.py", fault)
    script = write(tmp_path / "x.py", "print('still runs')\n")
    jobs = []
    for name, path in (("bare", ""), ("observed", f"{SITE}:")):
        env = environment(tmp_path / name, PYTHONPATH=f"{path}{tmp_path / 'site'}")
        env |= {"STEPTIME_RUN": str(tmp_path / name), "STEPTIME_GUEST": "unused"}
        jobs.append(subprocess.run([sys.executable, script], env=env, capture_output=True))
    bare, observed = jobs
    assert b"Error in sitecustomize" in bare.stderr
    assert (observed.stdout, observed.stderr) == (bare.stdout, bare.stderr)
    assert len(rows(tmp_path / "observed" / "processes.jsonl")) == 1


def test_a_usercustomize_runs_too(tmp_path: Path) -> None:
    python = getattr(sys, "_base_executable", sys.executable)  # none is read in an environment
    write(tmp_path / "site" / "usercustomize.py", "print('theirs ran')\n")
    env = environment(tmp_path, PYTHONPATH=f"{SITE}:{tmp_path / 'site'}")
    env |= {"STEPTIME_RUN": str(tmp_path), "STEPTIME_GUEST": "unused"}
    words = [python, "-c", "import site; print(site.ENABLE_USER_SITE)"]
    done = subprocess.run(words, env=env, capture_output=True)
    if done.stdout.endswith(b"False\n"):
        pytest.skip("this Python reads no usercustomize")
    assert done.stdout == b"theirs ran\nTrue\n"
    assert len(rows(tmp_path / "processes.jsonl")) == 1


def test_the_script_sees_the_path_and_arguments_it_would_see_without_us(tmp_path: Path) -> None:
    script = write(tmp_path / "x.py", SHOW)
    other = f"{tmp_path}:{tmp_path / 'missing'}"
    for more in ({}, {"PYTHONPATH": other}):
        bare, observed = run_both_truly(tmp_path, "python", script, "--lr", "3", **more)
        assert observed.stdout == bare.stdout
        shutil.rmtree(tmp_path / "observed")


# -- what keeps the guest out is said


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_a_python_that_keeps_us_out_is_reported(tmp_path: Path, flag: str) -> None:
    done = run_observed(tmp_path, "python", flag, "-c", "print('ran')")
    assert (done.exit_code, done.stdout) == (0, b"ran\n")
    assert "no_python_seen" in done.notes
    assert "No Python process was seen" in done.stderr.decode()


def old_pythons() -> list[str]:
    """Interpreters of this machine that are too old for the guest, and start."""
    versions = [f"3.{minor}" for minor in range(4, 10)] + ["2.7"]
    names = [shutil.which(f"python{version}") for version in versions]
    installed = sorted(Path.home().glob(".pyenv/versions/*/bin/python"))
    names += [str(path) for path in installed if path.parts[-3].startswith(("2.", "3."))]
    code = "import sys; sys.exit(sys.version_info >= (3, 10))"
    return [
        name
        for name in names
        if name and subprocess.run([name, "-c", code], capture_output=True).returncode == 0
    ]


def test_a_python_too_old_is_reported_and_left_alone(tmp_path: Path) -> None:
    pythons = old_pythons()
    if not pythons:
        pytest.skip("this machine has no Python before 3.10")
    command = "; ".join(f"{name} -c 'print(1)'" for name in pythons)
    # Python 2 would leave its bytecode beside our file, where nothing else is to stand.
    done = run_observed(tmp_path, "sh", "-c", command, PYTHONDONTWRITEBYTECODE="1")
    assert done.stdout == b"1\n" * len(pythons), done.stderr.decode()
    assert len(processes(tmp_path, "old")) == len(pythons)
    assert "is too old to be watched" in done.stderr.decode()


def test_the_first_file_stays_out_of_a_python_that_says_it_is_old(tmp_path: Path) -> None:
    code = (
        "import runpy, sys\n"
        "before, sys.version_info = list(sys.meta_path), (3, 8, 1, 'final', 0)\n"
        f"runpy.run_path({str(SITE / 'sitecustomize.py')!r})\n"
        "assert sys.meta_path == before"
    )
    env = environment(tmp_path, STEPTIME_RUN=str(tmp_path), STEPTIME_GUEST="unused")
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    (line,) = rows(tmp_path / "processes.jsonl")
    assert (line["k"], line["python"]) == ("old", "3.8.1")


# -- torch that is not there, too old, or not what we know


def test_a_python_without_torch_is_reported(tmp_path: Path, elsewhere: Path) -> None:
    script = write(tmp_path / "x.py", "import torch\n")
    bare, observed = run_both_truly(tmp_path, elsewhere, script)
    assert bare.exit_code == observed.exit_code == 1
    assert b"ModuleNotFoundError: No module named 'torch'" in bare.stderr
    assert observed.stderr.startswith(bare.stderr)
    assert observed.stderr.removeprefix(bare.stderr).count(b"\n") == 1
    assert "no_torch_seen" in observed.notes


def fake_torch(folder: Path, text: str) -> Path:
    write(folder / "torch" / "__init__.py", text)
    return write(folder / "x.py", "import torch; print(torch.__version__)\n")


def test_a_torch_too_old_is_reported_and_left_alone(tmp_path: Path) -> None:
    script = fake_torch(tmp_path, "__version__ = '2.1.0'\n")
    done = run_truly(tmp_path, "python", script)
    assert (done.exit_code, done.stdout) == (0, b"2.1.0\n")
    assert done.notes["old_torch"] == {"versions": "2.1.0"}
    assert "torch 2.1.0 is too old to be watched" in done.stderr.decode()


@pytest.mark.parametrize("version", ["'2.9.0'", "'nightly'", "None"])
def test_a_torch_that_is_not_what_we_know_is_reported_and_works(
    tmp_path: Path, version: str
) -> None:
    script = fake_torch(tmp_path, f"__version__ = {version}\n")
    done = run_truly(tmp_path, "python", script)
    assert (done.exit_code, done.stdout) == (0, f"{version}\n".replace("'", "").encode())
    assert "hooks_failed" in done.notes
    assert "Steptime could not get into torch" in done.stderr.decode()


def test_a_torch_that_fails_to_import_fails_as_without_us(tmp_path: Path) -> None:
    fake_torch(tmp_path, "__version__ = '2.9.0'\nraise OSError('libtorch.so: cannot open')\n")
    text = "try:\n    import torch\nexcept OSError as error:\n    print(error)\nimport torch\n"
    script = write(tmp_path / "x.py", text)
    bare, observed = run_both_truly(tmp_path, "python", script)
    assert bare.exit_code == observed.exit_code == 1
    assert observed.stdout == bare.stdout == b"libtorch.so: cannot open\n"
    if sys.version_info >= (3, 11):  # 3.10 keeps a frame of ours
        assert observed.stderr.startswith(bare.stderr)
