"""`steptime run` with real processes and no torch: the command must not notice us."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import termios
import time
import venv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from steptime.app.run.run_end import COMMAND
from steptime.launch.user_command import GUEST, SITE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals and /proc as on Linux")

STEPTIME = (sys.executable, "-m", "steptime")
LIMIT_S = 60


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """The tests' environment with a temporary folder of its own, and this Python first on PATH."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "STEPTIME"))}
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    here = str(Path(sys.executable).parent)
    own |= {"PATH": f"{here}:{os.environ['PATH']}", "TMPDIR": str(temporary), "COLUMNS": "200"}
    return own | variables


def run(
    folder: Path,
    *command: str | bytes,
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    **more: object,
) -> subprocess.CompletedProcess[bytes]:
    """The command under `steptime run`, started in the folder."""
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [*STEPTIME, "run", *options, "--", *command],
        cwd=folder,
        env=environment(folder) if env is None else env,
        capture_output=True,
        timeout=LIMIT_S,
        **more,
    )


def start(
    folder: Path, *command: str, around: Sequence[str] = (), **more: object
) -> subprocess.Popen[bytes]:
    """The same, not waited for; it has said `ready` on stdout."""
    job = subprocess.Popen(  # type: ignore[call-overload]
        [*around, *STEPTIME, "run", "--", *command],
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # `communicate` knows nothing of what `readline` has read ahead
        **more,
    )
    assert job.stdout.readline() == b"ready\n"
    return job  # type: ignore[no-any-return]


def finish(job: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    out, err = job.communicate(timeout=LIMIT_S)
    return job.returncode, out.decode(), err.decode()


def python(code: str) -> tuple[str, str, str]:
    return ("python", "-c", code)


def write_script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def run_folder(folder: Path) -> Path:
    (found,) = (folder / ".steptime" / "runs").iterdir()
    return found


def observed(folder: Path) -> list[dict[str, object]]:
    """The Python processes that our guest got into."""
    path = run_folder(folder) / "processes.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in map(json.loads, lines) if line["k"] == "start"]


# -- how it ends


@pytest.mark.parametrize("code", [0, 1, 3, 255])
def test_the_exit_code_is_the_commands(tmp_path: Path, code: int) -> None:
    assert run(tmp_path, "sh", "-c", f"exit {code}").returncode == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGPIPE])
def test_the_signal_that_kills_the_command_kills_us(tmp_path: Path, number: int) -> None:
    assert run(tmp_path, "sh", "-c", f"kill -{int(number)} $$").returncode == -number


def test_how_it_ended_is_in_the_run_folder(tmp_path: Path) -> None:
    run(tmp_path, "sh", "-c", "exit 3")
    run(tmp_path, "sh", "-c", "kill -9 $$")
    ends = set()
    for path in (tmp_path / ".steptime" / "runs").glob("*/command.json"):
        command = json.loads(path.read_text())
        assert command["ended_unix_s"] >= command["started_unix_s"]
        ends.add((command["exit_code"], command["signal"]))
    assert ends == {(3, None), (None, 9)}


def test_a_command_that_is_not_there_ends_with_127_and_leaves_no_run(tmp_path: Path) -> None:
    done = run(tmp_path, "no-such-command", "--lr", "3")
    assert done.returncode == 127
    assert b"error: the command `no-such-command` was not found." in done.stderr
    assert not (tmp_path / ".steptime").exists()


def test_a_script_named_as_a_command_is_told_its_interpreter(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    done = run(tmp_path, "train.py", "--lr", "3")
    assert done.returncode == 127
    assert b"Name its interpreter: python train.py --lr 3" in done.stderr


def test_a_file_that_is_not_executable_ends_with_126(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("exit 0\n")
    done = run(tmp_path, "./train.sh")
    assert (done.returncode, b"is not executable" in done.stderr) == (126, True)


def test_a_folder_as_command_ends_with_126(tmp_path: Path) -> None:
    done = run(tmp_path, "./tmp")
    assert (done.returncode, b"is a folder" in done.stderr) == (126, True)


def test_a_missing_interpreter_ends_with_127(tmp_path: Path) -> None:
    write_script(tmp_path / "train", "#!/no/such/python\n")
    done = run(tmp_path, "./train")
    assert (done.returncode, b"interpreter that was not found" in done.stderr) == (127, True)


def test_a_file_without_a_first_line_for_the_kernel_is_a_shell_script(tmp_path: Path) -> None:
    write_script(tmp_path / "train", 'echo "$0 $1 $#"\nexit 4\n')
    done = run(tmp_path, "./train", "a b", "c")
    assert (done.returncode, done.stdout) == (4, b"./train a b 2\n")


def test_an_ignored_sigchld_does_not_lose_the_exit_code(tmp_path: Path) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    assert run(tmp_path, "sh", "-c", "exit 3", preexec_fn=ignore).returncode == 3


# -- what passes through


def test_input_and_output_pass_byte_for_byte(tmp_path: Path) -> None:
    blob = bytes(range(256)) * 4096
    done = run(tmp_path, "cat", input=blob)
    assert done.stdout == blob


def test_errors_pass_untouched_and_come_before_our_line(tmp_path: Path) -> None:
    done = run(tmp_path, *python("import sys; sys.stderr.buffer.write(b'\\xff\\n'); 1 / 0"))
    assert done.returncode == 1
    assert done.stdout == b""
    theirs, ours = done.stderr.rsplit(b"steptime: ", 1)
    assert theirs.startswith(b"\xff\nTraceback")
    assert theirs.endswith(b"ZeroDivisionError: division by zero\n")
    assert ours.count(b"\n") == 1
    assert b"before its first step" in ours


def test_arguments_pass_byte_for_byte(tmp_path: Path) -> None:
    words = (b"--", b"", b"a b", b"\xff", b"*", b"'\"", b"\n", b"--help", b"--json")
    code = "import os, sys; print([os.fsencode(word) for word in sys.argv[1:]])"
    done = run(tmp_path, *python(code), *words)
    assert done.stdout.decode().strip() == str(list(words))


def test_an_open_descriptor_is_inherited(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        number = file.fileno()
        code = f"import os; os.write({number}, b'hello')"
        run(tmp_path, *python(code), pass_fds=[number])
    assert (tmp_path / "log").read_text() == "hello"


def test_no_descriptor_of_ours_is_inherited(tmp_path: Path) -> None:
    done = run(tmp_path, "ls", "/proc/self/fd")
    assert len(done.stdout.split()) == 4  # the three streams, and the folder that is read


def test_who_reads_our_output_sees_the_command_close_it(tmp_path: Path) -> None:
    job = start(tmp_path, "sh", "-c", "echo ready; exec >&-; read line; exit 5")
    assert job.stdout is not None
    assert job.stdout.read() == b""
    assert job.poll() is None
    assert finish(job)[0] == 5


def test_the_command_is_in_our_process_group(tmp_path: Path) -> None:
    code = "import os; print('ready', flush=True); print(os.getpgrp())"
    job = start(tmp_path, *python(code), start_new_session=True)
    assert finish(job)[1] == f"{job.pid}\n"


def test_signal_mask_and_dispositions_are_those_we_were_started_with(tmp_path: Path) -> None:
    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, signal.SIGWINCH])
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    command = ["grep", "^Sig[BI]", "/proc/self/status"]
    bare = subprocess.run(command, preexec_fn=prepare, capture_output=True)
    assert run(tmp_path, *command, preexec_fn=prepare).stdout == bare.stdout


def test_under_nohup_a_hangup_is_still_ignored(tmp_path: Path) -> None:
    code = "import signal; print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)"
    done = subprocess.run(
        ["nohup", *STEPTIME, "run", "--", *python(code)],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
    )
    assert done.stdout == b"True\n"


# -- signals

COUNTER = """\
import os, signal, sys, time
seen = []
for number in (1, 2, 3, 10, 12, 15):
    signal.signal(number, lambda number, frame: seen.append(number))
print("ready", flush=True)
until = time.monotonic() + 30
while not seen and time.monotonic() < until:
    time.sleep(0.01)
time.sleep(0.3)
print(seen)
sys.exit(7)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"])
def test_a_signal_sent_to_us_reaches_the_command_once(tmp_path: Path, name: str) -> None:
    number = signal.Signals[name]
    job = start(tmp_path, *python(COUNTER))
    job.send_signal(number)
    code, out, _ = finish(job)
    assert (code, out) == (7, f"[{int(number)}]\n")


needs_pkill = pytest.mark.skipif(shutil.which("pkill") is None, reason="no pkill is installed")

SAVES = """\
import time
try:
    print("ready", flush=True)
    time.sleep(30)
except KeyboardInterrupt:
    time.sleep(0.3)  # it writes a checkpoint
    print("saved", flush=True)
"""


def in_turn(group: int) -> None:
    """Interrupt each process of a group, as a scheduler does that knows them all."""
    stats = [stat.read_text() for stat in Path("/proc").glob("[0-9]*/stat")]
    of_group = [line for line in stats if line.rpartition(")")[2].split()[2] == str(group)]
    assert len(of_group) > 1
    for line in of_group:
        os.kill(int(line.split()[0]), signal.SIGINT)


@pytest.mark.parametrize("send", [lambda group: os.killpg(group, signal.SIGINT), in_turn])
def test_an_interrupt_of_the_group_lets_the_command_save(
    tmp_path: Path, send: Callable[[int], None]
) -> None:
    job = start(tmp_path, *python(SAVES), start_new_session=True)
    send(job.pid)
    code, out, err = finish(job)
    assert (code, out) == (0, "saved\n"), err


TELLER = """\
import os, signal, sys, time
told = sys.stdout.fileno()
for number in (1, 10, 12):
    signal.signal(number, lambda number, frame: os.write(told, b"%d\\n" % number))
print("ready", flush=True)
sys.stdin.read()
time.sleep(0.3)  # for one that comes twice
sys.exit(7)
"""


def test_signals_to_the_group_and_to_us_are_counted_as_they_are_without_us(tmp_path: Path) -> None:
    job = start(tmp_path, *python(TELLER), start_new_session=True)
    assert job.stdout is not None
    for number in [10, 12] * 4 + [1]:
        if number == 10:
            os.killpg(job.pid, number)
        else:
            job.send_signal(number)
        # On a busy machine two that nobody has taken yet would count as one.
        assert job.stdout.readline() == b"%d\n" % number
        time.sleep(0.2)  # longer than two of one sender count as one
    code, out, _ = finish(job)
    assert (code, out) == (7, "")


def test_a_time_limit_interrupts_the_command_once(tmp_path: Path) -> None:
    job = start(tmp_path, *python(COUNTER), around=("timeout", "--signal=INT", "2"))
    _, out, _ = finish(job)
    assert out == "[2]\n"


@needs_pkill
def test_whoever_kills_by_the_name_of_the_script_interrupts_it_once(tmp_path: Path) -> None:
    (tmp_path / "saves_it.py").write_text(SAVES)
    job = start(tmp_path, "python", str(tmp_path / "saves_it.py"), start_new_session=True)
    children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    found = subprocess.run(["pgrep", "-f", str(tmp_path / "saves_it.py")], stdout=subprocess.PIPE)
    assert set(found.stdout.decode().split()) == {str(job.pid), *children}
    assert len(children) == 2
    subprocess.run(["pkill", "-INT", "-f", str(tmp_path / "saves_it.py")], check=True)
    code, out, err = finish(job)
    assert (code, out) == (0, "saved\n"), err
    assert not any(Path(f"/proc/{child}").exists() for child in children)


@needs_pkill
def test_whoever_kills_us_by_name_interrupts_the_command_once(tmp_path: Path) -> None:
    job = start(tmp_path, *python(COUNTER), start_new_session=True)
    subprocess.run(["pkill", "-INT", "-s", str(job.pid), "-f", "steptime run"], check=True)
    assert finish(job)[1] == "[2]\n"


def test_ctrl_c_at_the_terminal_reaches_the_command_once(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    job = start(
        tmp_path,
        *python(
            COUNTER.replace("import os", f"import os; open({os.ttyname(theirs)!r})\nimport os")
        ),
        start_new_session=True,
        pass_fds=[theirs],
        preexec_fn=lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0),
    )
    os.write(ours, b"\x03")
    code, out, _ = finish(job)
    os.close(ours)
    os.close(theirs)
    assert (code, out) == (7, "[2]\n")


def test_a_keyboard_interrupt_ends_as_python_ends_it(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(2, signal.default_int_handler)\n"
    job = start(tmp_path, *python(code + "print('ready', flush=True); time.sleep(30)"))
    job.send_signal(signal.SIGINT)
    code_, _, err = finish(job)
    assert code_ == -signal.SIGINT  # a shell shows 130
    assert "KeyboardInterrupt" in err
    assert "steptime: " in err


def test_a_stopped_command_is_not_an_ended_one(tmp_path: Path) -> None:
    code = "import os, signal; print('ready', flush=True); print(os.getpid(), flush=True);"
    job = start(tmp_path, *python(code + "input(); raise SystemExit(6)"))
    assert job.stdout is not None
    pid = int(job.stdout.readline())
    os.kill(pid, signal.SIGSTOP)
    os.kill(pid, signal.SIGCONT)
    assert job.stdin is not None
    job.stdin.write(b"go\n")
    assert finish(job)[0] == 6


def test_our_death_leaves_the_command_running_and_the_run_showable(tmp_path: Path) -> None:
    code = "import os, sys; print('ready', os.getpid(), sep='\\n', flush=True); sys.stdin.read()\n"
    job = start(tmp_path, *python(code + "open('finished', 'w').close()"))
    assert job.stdout is not None
    pid = int(job.stdout.readline())
    (record,) = (tmp_path / ".steptime" / "runs").glob(f"*/{COMMAND}")
    while json.loads(record.read_text()).get("child_pid") != pid:
        time.sleep(0.01)  # the command may speak before it is written down
    job.kill()
    job.wait()
    os.kill(pid, 0)
    assert show(tmp_path)["data"]["measurement"]["end"]["state"] == "running"
    assert job.stdin is not None
    job.stdin.close()
    assert job.stdout.read() == b""  # closed by the last who had it: the command
    job.stdout.close()
    assert (tmp_path / "finished").exists()
    assert show(tmp_path)["data"]["measurement"]["end"]["state"] == "unknown"
    assert job.stderr is not None
    job.stderr.close()


def show(folder: Path) -> dict[str, dict[str, dict[str, str]]]:
    done = subprocess.run(
        [*STEPTIME, "show", "last", "--json"],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        check=True,
    )
    document: dict[str, dict[str, dict[str, str]]] = json.loads(done.stdout)
    return document


def test_without_sigtimedwait_signals_are_passed_on_too(tmp_path: Path) -> None:
    code = "import signal, sys; del signal.sigtimedwait\n"
    code += "from steptime.cli.main import main; sys.exit(main(sys.argv[1:]))"
    job = subprocess.Popen(
        [sys.executable, "-c", code, "run", "--", *python(COUNTER)],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    assert job.stdout is not None
    assert job.stdout.readline() == b"ready\n"
    job.send_signal(signal.SIGTERM)
    assert finish(job)[:2] == (7, "[15]\n")


# -- the environment

SHOW = "import os; print(*(os.environ.get(n, '-') for n in ('PYTHONPATH', 'PATH')), sep='\\n')"


@pytest.mark.parametrize(
    ("theirs", "seen"),
    [
        ({}, f"{SITE}"),
        ({"PYTHONPATH": ""}, f"{SITE}"),
        ({"PYTHONPATH": "/a"}, f"{SITE}:/a"),
        ({"PYTHONPATH": "/a:/b"}, f"{SITE}:/a:/b"),
        ({"PYTHONPATH": f"{SITE}:/a"}, f"{SITE}:/a"),
    ],
)
def test_our_folder_is_first_on_pythonpath_without_an_empty_entry(
    tmp_path: Path, theirs: dict[str, str], seen: str
) -> None:
    done = run(tmp_path, "sh", "-c", "echo $PYTHONPATH", env=environment(tmp_path, **theirs))
    assert done.stdout.decode() == seen + "\n"


def test_the_shims_are_first_on_path_and_the_rest_is_as_it_was(tmp_path: Path) -> None:
    env = environment(tmp_path)
    done = run(tmp_path, "sh", "-c", "echo $PATH", env=env)
    assert done.stdout.decode() == f"{run_folder(tmp_path)}/shims:{env['PATH']}\n"


def test_the_guest_is_told_where_it_writes_and_where_it_lies(tmp_path: Path) -> None:
    done = run(tmp_path, "sh", "-c", "echo $STEPTIME_RUN; echo $STEPTIME_GUEST")
    assert done.stdout.decode().splitlines() == [str(run_folder(tmp_path)), str(GUEST)]


def test_a_locale_that_our_python_set_for_itself_is_not_passed_on(tmp_path: Path) -> None:
    env = {k: v for k, v in environment(tmp_path).items() if not k.startswith(("LC_", "LANG"))}
    done = run(tmp_path, "sh", "-c", "echo ${LC_CTYPE-unset}", env=env)
    assert done.stdout == b"unset\n"


def test_only_interpreters_that_are_on_path_get_a_shim(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("python3", "python3.11", "pypy3", "python3-config"):
        write_script(tools / name, "#!/bin/sh\n")
    (tools / "python").write_text("not executable")
    run(tmp_path, "/bin/true", env=environment(tmp_path, PATH=str(tools)))
    names = {path.name for path in (run_folder(tmp_path) / "shims").iterdir()}
    assert names == {"python3", "python3.11"}


# -- the shims


def test_a_shell_script_that_sets_pythonpath_itself_is_observed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys; print(sys.executable)\n")
    write_script(tmp_path / "train.sh", "#!/bin/sh\nPYTHONPATH=. python train.py\n")
    done = run(tmp_path, "./train.sh")
    assert done.stdout.decode() == f"{sys.executable}\n"
    assert len(observed(tmp_path)) == 1


def test_a_virtual_environment_on_path_is_kept(tmp_path: Path) -> None:
    venv.create(tmp_path / "own env", symlinks=True)
    path = f"{tmp_path / 'own env' / 'bin'}:{os.environ['PATH']}"
    command = "PYTHONPATH=. python -c 'import sys; print(sys.prefix, sys.executable, sep=\"\\n\")'"
    done = run(tmp_path, "sh", "-c", command, env=environment(tmp_path, PATH=path))
    prefix = tmp_path / "own env"
    assert done.stdout.decode().splitlines() == [str(prefix), str(prefix / "bin" / "python")]
    assert len(observed(tmp_path)) == 1


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_a_shim_passes_arguments_and_exit_code(tmp_path: Path, shell: str) -> None:
    run(tmp_path, "true")
    shim = str(run_folder(tmp_path) / "shims" / "python3")
    code = "import sys; print(sys.argv); sys.exit(9)"
    done = subprocess.run(
        [shell, shim, "-c", code, "a b", "", "*"], env=environment(tmp_path), capture_output=True
    )
    assert (done.returncode, done.stdout) == (9, b"['-c', 'a b', '', '*']\n")


def test_a_shim_without_a_next_interpreter_says_so_as_a_shell_does(tmp_path: Path) -> None:
    done = run(tmp_path, "/bin/sh", "-c", 'PATH=${PATH%%:*} exec "python3"')
    assert done.returncode == 127
    assert done.stderr.startswith(b"python3: command not found\n")


@pytest.mark.parametrize("clean", ["env -i", "env PATH=/usr/bin:/bin", "env -u PATH"])
def test_an_interpreter_that_which_found_stays_itself_when_path_is_cleaned(
    tmp_path: Path, clean: str
) -> None:
    line = f"{clean} $(which python) -c 'import sys; print(sys.executable)'"
    done = run(tmp_path, "bash", "-c", line)
    assert (done.returncode, done.stdout.decode()) == (0, f"{sys.executable}\n")


def test_a_shim_of_another_tool_that_comes_back_to_ours_ends_at_the_next(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    others = environment(tmp_path)["PATH"]
    lookup = '#!/bin/sh\nexec "$(PATH=${PATH%%:*}:OTHERS command -v python)" "$@"\n'
    write_script(tools / "python", lookup.replace("OTHERS", others))
    env = environment(tmp_path, PATH=f"{tools}:{others}")
    done = run(tmp_path, "python", "-c", "import sys; print(sys.executable)", env=env)
    assert done.stdout.decode() == f"{sys.executable}\n"


def test_a_python_that_starts_itself_again_stays_itself(tmp_path: Path) -> None:
    code = "import os, sys; n = int(sys.argv[1]); print(sys.executable, flush=True)\n"
    code += "n and os.execvp('python', ['python', sys.argv[2], str(n - 1), sys.argv[2]])"
    (tmp_path / "again.py").write_text(code)
    done = run(tmp_path, "python", "again.py", "2", "again.py")
    assert done.stdout.decode().splitlines() == [sys.executable] * 3


def test_a_run_inside_a_run_is_two_runs(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    done = run(
        tmp_path, "sh", "-c", f"cd inner && {' '.join(STEPTIME)} run -- python -c 'print(1)'"
    )
    assert done.stdout == b"1\n"
    assert len(observed(inner)) == 1


# -- places


def test_odd_characters_in_paths_do_no_harm(tmp_path: Path) -> None:
    folder = tmp_path / 'it\'s a "$HOME" `dir` \\ ü'
    folder.mkdir()
    (folder / "my train.py").write_text("import sys; print(sys.argv)\n")
    done = run(folder, "sh", "-c", 'PYTHONPATH=. python "my train.py" "a b"')
    assert done.stdout == b"['my train.py', 'a b']\n"
    assert len(observed(folder)) == 1


def test_a_colon_in_the_folder_costs_the_shims_only(tmp_path: Path) -> None:
    folder = tmp_path / "a:b"
    folder.mkdir()
    done = run(folder, *python(SHOW))
    assert done.stdout.decode().splitlines() == [str(SITE), environment(folder)["PATH"]]
    assert len(observed(folder)) == 1


def test_an_unwritable_folder_is_said_at_the_end_and_the_run_kept_elsewhere(tmp_path: Path) -> None:
    (tmp_path / ".steptime").write_text("a file in the way")
    done = run(tmp_path, "sh", "-c", "exit 3")
    assert done.returncode == 3
    (line,) = [line for line in done.stderr.decode().splitlines() if "cannot be written" in line]
    why = f"{tmp_path}/.steptime cannot be written (Not a directory)"
    assert line.startswith(f"steptime: {why}; the run is in {tmp_path}/tmp/")
    assert show(tmp_path)["data"]["measurement"]["end"]["state"] == "failed"


def test_without_any_place_to_write_the_command_runs_unobserved(tmp_path: Path) -> None:
    (tmp_path / ".steptime").write_text("a file in the way")
    env = environment(tmp_path)
    (tmp_path / "tmp" / f"steptime-{os.getuid()}").write_text("another")
    done = run(tmp_path, "sh", "-c", "echo ${STEPTIME_RUN-none}; exit 3", env=env)
    assert (done.returncode, done.stdout) == (3, b"none\n")
    assert b"the command ran unobserved" in done.stderr
    assert (
        b"it is a file and not a folder. Name a folder that you can write: --store" in done.stderr
    )


def test_a_deleted_working_folder_does_not_stop_the_command(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f"rmdir {gone}; {' '.join(STEPTIME)} run -- sh -c 'echo hello; exit 3'"
    done = subprocess.run(
        ["sh", "-c", command], cwd=gone, env=environment(tmp_path), capture_output=True
    )
    assert (done.returncode, done.stdout) == (3, b"hello\n")
    assert b"cannot be written" in done.stderr


def test_a_deleted_run_folder_is_one_line_and_stays_deleted(tmp_path: Path) -> None:
    # Again and again: what we write at the start may come in between.
    done = run(tmp_path, "sh", "-c", "while [ -e .steptime ]; do rm -rf .steptime; done")
    assert done.returncode == 0
    ours = [line for line in done.stderr.splitlines() if line.startswith(b"steptime: ")]
    assert len(ours) == 1
    assert b"was deleted while the command ran" in ours[0]
    assert not (tmp_path / ".steptime").exists()


def test_two_runs_at_once_keep_apart(tmp_path: Path) -> None:
    jobs = [start(tmp_path, *python("print('ready', flush=True); input()")) for _ in range(2)]
    for job in jobs:
        assert finish(job)[0] == 1  # no input: EOFError
    folders = list((tmp_path / ".steptime" / "runs").iterdir())
    assert len(folders) == 2
    for folder in folders:
        assert len((folder / "processes.jsonl").read_text().splitlines()) == 1


# -- what is said, and written


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-", ">&-", "<&-"])
def test_a_broken_stream_does_not_change_the_exit_code(tmp_path: Path, redirection: str) -> None:
    command = f"{' '.join(STEPTIME)} run -- sh -c 'exit 3' {redirection}"
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, env=environment(tmp_path), capture_output=True
    )
    assert (done.returncode, done.stdout) == (3, b"")


def test_the_report_and_the_document_go_to_the_named_files(tmp_path: Path) -> None:
    done = run(tmp_path, "true", options=["--report", "r.txt", "--json", "r.json"])
    assert (done.stdout, done.stderr) == (b"", b"")
    assert "nothing to measure" in (tmp_path / "r.txt").read_text()
    document = json.loads((tmp_path / "r.json").read_text())
    assert (document["command"], document["exit_code"]) == ("run", 0)
    assert document["data"]["measurement"]["run_id"] == run_folder(tmp_path).name


def test_a_document_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    done = run(tmp_path, "sh", "-c", "exit 3", options=["--json", "/dev/full"])
    assert done.returncode == 3
    assert b"steptime: --json:" in done.stderr


def test_the_run_folder_holds_what_was_started_and_no_values_of_variables(tmp_path: Path) -> None:
    env = environment(tmp_path, SECRET_TOKEN="hunter2")
    run(tmp_path, "sh", "-c", "exit 0", env=env)
    text = (run_folder(tmp_path) / "command.json").read_text()
    command = json.loads(text)
    assert (command["argv"], command["cwd"]) == (["sh", "-c", "exit 0"], str(tmp_path))
    assert "SECRET_TOKEN" in command["environment_names"]
    assert "hunter2" not in text


def test_the_load_of_the_machine_is_sampled_while_the_command_runs(tmp_path: Path) -> None:
    code = "import time\nwhile time.process_time() < 1.3: pass"
    run(tmp_path, *python(code))
    lines = (run_folder(tmp_path) / "host.jsonl").read_text().splitlines()
    head, first = (json.loads(line) for line in lines[:2])
    assert head["num_cores"] == os.cpu_count()
    assert 0.1 < first["job_cores"] < 1.5


def test_the_store_is_listed_and_shown_again(tmp_path: Path) -> None:
    run(tmp_path, "sh", "-c", "exit 3")
    listed = subprocess.check_output([*STEPTIME, "list"], cwd=tmp_path, env=environment(tmp_path))
    assert run_folder(tmp_path).name in listed.decode()
    assert "exit 3" in listed.decode()
    assert stat.S_ISREG((tmp_path / ".steptime" / "index.sqlite").stat().st_mode)
