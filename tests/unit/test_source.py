"""The lines of the user's source that a record names, and what is found beside them."""

from __future__ import annotations

import ast
import json
import os
from pathlib import Path

import pytest

from steptime.measure.source import scan as scanning
from steptime.measure.source.scan import Source, SourceMark, read_source, write_source
from steptime.measure.source.source_switches import find_switches
from unit.builders import Line, make_head, write_run

SCRIPT = """\
import torch
torch.autograd.set_detect_anomaly(True)
criterion = torch.nn.MSELoss()
for i, (x, y) in enumerate(loader):
    loss = criterion(model(x), y)
    loss.backward()
    if i % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
"""


def scan(folder: Path, *lines: Line, processes: tuple[Line, ...] = ()) -> Source:
    """What is written for a run that started in `folder`, and read again."""
    files = {"rank-0.jsonl": [make_head(argv=["train.py"]), *lines], "processes.jsonl": processes}
    run = write_run(folder / "run", files)
    write_source(run, cwd=str(folder))
    return read_source(run)


def make_site(file: Path, line: int, *, what: str = "sync") -> Line:
    return {"k": "s", "n": 28, "updates": 4, "sites": [[what, str(file), line, line, 4, None]]}


# -- lines


def test_lines_that_places_and_errors_name_are_kept(tmp_path: Path) -> None:
    other, train = tmp_path / "other.py", tmp_path / "train.py"
    other.write_text("a = 1\n    print(a)  \n" + "x" * 200 + "\n")
    train.write_text("import other\nmain()\n")
    spans = {"k": "a", "n": 5, "sites": [["evaluation", str(train), 2, 2, 5, 100]]}
    event = ["why", str(other), 3, 1]
    compiled = {"k": "c", "n": 5, "graphs": 1, "breaks": [["why", None, None, 1]]}
    compiled |= {"recompiles": [event]}
    error = {"k": "exit", "pid": 1, "error": {"type": "E", "file": str(train), "line": 1}}
    found = scan(tmp_path, make_site(other, 2), spans, compiled, processes=(error,))
    assert found.texts == {
        (str(train), 1): "import other",
        (str(train), 2): "main()",
        (str(other), 2): "print(a)",
        (str(other), 3): "x" * 80,
    }


def test_lines_are_counted_as_python_counts_them(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_bytes(b"a = '\x0c\xe2\x80\xa8'\r\nb = 2\rc = 3\n")
    found = scan(tmp_path, make_site(tmp_path / "train.py", 3))
    assert list(found.texts.values()) == ["c = 3"]


def test_another_encoding_is_heeded(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_bytes("# coding: latin-1\nname = 'é'\n".encode("latin-1"))
    found = scan(tmp_path, make_site(tmp_path / "train.py", 2))
    assert list(found.texts.values()) == ["name = 'é'"]


def test_places_that_are_not_there_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("x\n\n")
    names = [tmp_path / "gone.py", Path("<string>"), tmp_path, Path("relative.py")]
    sites = [make_site(name, 1) for name in names]
    sites += [make_site(tmp_path / "train.py", line) for line in (0, 2, 99, -1)]
    assert scan(tmp_path, *sites).texts == {}


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train.py")
    assert scan(tmp_path, make_site(tmp_path / "train.py", 1)) == Source()


@pytest.mark.parametrize(
    "row",
    [{"no": "kind"}, {"k": "s"}, {"k": "s", "sites": 3}, {"k": "s", "sites": [3]},
     {"k": "a", "sites": [[]]}, {"k": "c", "breaks": None}, {"k": "head", "argv": []}],
)  # fmt: skip
def test_lines_of_another_shape_cost_themselves_only(tmp_path: Path, row: Line) -> None:
    (tmp_path / "train.py").write_text("x\n")
    assert len(scan(tmp_path, row, make_site(tmp_path / "train.py", 1)).texts) == 1


# -- what looks wrong


def test_the_kind_of_a_line_may_stand_anywhere_in_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    run = write_run(tmp_path / "run", {"rank-0.jsonl": [{"argv": ["train.py"], "k": "head"}]})
    write_source(run, cwd=str(tmp_path))
    assert len(read_source(run).suspicions) == 1


def test_the_main_script_is_looked_into(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    name = str(tmp_path / "train.py")
    found = scan(tmp_path)
    text = "loss.backward()"
    assert found.suspicions == (SourceMark(code="accumulation_loss", file=name, line=6, text=text),)
    assert found.switches == (SourceMark(code="anomaly_mode", file=name, line=2),)


def test_installed_code_is_shown_and_not_suspected(tmp_path: Path) -> None:
    file = tmp_path / "site-packages" / "lib.py"
    file.parent.mkdir()
    file.write_text(SCRIPT)
    found = scan(tmp_path, make_site(file, 6))
    assert list(found.texts.values()) == ["loss.backward()"]
    assert found.suspicions == found.switches == ()


@pytest.mark.parametrize("text", ["def broken(:\n", "x = '\\d'\0", "(" * 5000, "no python at all"])
def test_what_cannot_be_parsed_still_has_lines(tmp_path: Path, text: str) -> None:
    (tmp_path / "train.py").write_text(text)
    found = scan(tmp_path, make_site(tmp_path / "train.py", 1))
    assert (len(found.texts), found.suspicions) == (1, ())


def test_odd_escapes_in_the_users_strings_are_not_our_warning(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("x = '\\d'\n")  # warnings are errors in these tests
    assert len(scan(tmp_path, make_site(tmp_path / "train.py", 1)).texts) == 1


def test_nothing_is_executed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    scan(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_a_file_that_no_person_wrote_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "_MAX_FILE_BYTES", 10)
    (tmp_path / "train.py").write_text(SCRIPT)
    assert scan(tmp_path) == Source()


def test_where_nothing_can_be_read_nothing_is_written(tmp_path: Path) -> None:
    scan(tmp_path)
    assert not (tmp_path / "run" / "source.json").exists()


# -- what is read back


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '{"schema": 2}', '{"lines": []}', '{"schema": 1, "lines": 3}']
)
def test_a_damaged_or_foreign_file_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "source.json").write_text(text)
    assert read_source(tmp_path) == Source()


def test_rows_of_another_shape_are_left_out(tmp_path: Path) -> None:
    switches = [["deterministic", "/x.py", 3], ["deterministic", "/x.py", "3"], [], 7]
    document = {"schema": 1, "switches": switches}
    (tmp_path / "source.json").write_text(json.dumps(document))
    found = Source(switches=(SourceMark(code="deterministic", file="/x.py", line=3),))
    assert read_source(tmp_path) == found


# -- debug switches


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("torch.autograd.set_detect_anomaly(True)", "anomaly_mode"),
        ("set_detect_anomaly(mode=True)", "anomaly_mode"),
        ("with torch.autograd.detect_anomaly(): pass", "anomaly_mode"),
        ("Trainer(detect_anomaly=True)", "anomaly_mode"),
        ("torch.use_deterministic_algorithms(True, warn_only=True)", "deterministic"),
        ("torch.backends.cudnn.deterministic = True", "deterministic"),
        ("torch.set_deterministic_debug_mode('error')", "deterministic"),
        ("with torch.profiler.profile(schedule=s) as prof: pass", "profiler"),
        ("with profile(activities=a): pass", "profiler"),
        ("with torch.autograd.profiler.profile(): pass", "profiler"),
        ("with torch.profiler.profile(): pass", "profiler"),
        ("with profiler.profile(record_shapes=True): pass", "profiler"),
        ("with torch.autograd.profiler.emit_nvtx(): pass", "profiler"),
        ("sys.settrace(f)", "tracing"),
        ("cProfile.run('main()')", "tracing"),
        ("os.environ['CUDA_LAUNCH_BLOCKING'] = '1'", "launch_blocking"),
        ("os.environ.setdefault('CUDA_LAUNCH_BLOCKING', '1')", "launch_blocking"),
        ("os.environ.update({'CUDA_LAUNCH_BLOCKING': '1'})", "launch_blocking"),
        ("os.environ.update(TORCH_DISTRIBUTED_DEBUG='DETAIL')", "distributed_debug"),
        ("os.environ['MALLOC_CHECK_'] = level", "malloc_debug"),
    ],
)
def test_a_switch_that_is_turned_on_is_found(line: str, code: str) -> None:
    assert find_switches(ast.parse(f"import torch\n{line}\n")) == [(code, 2)]


@pytest.mark.parametrize(
    "line",
    [
        "torch.autograd.set_detect_anomaly(False)",
        "torch.use_deterministic_algorithms(mode=False)",
        "torch.set_deterministic_debug_mode('default')",
        "torch.backends.cudnn.deterministic = False",
        "Trainer(detect_anomaly=False)",
        "sys.settrace(None)",
        "os.environ['CUDA_LAUNCH_BLOCKING'] = '0'",
        "os.environ['OMP_NUM_THREADS'] = '1'",
        "os.environ.update({**other, name: '1'})",
        "os.environ.setdefault()",
        "torch.backends.cudnn.benchmark = True",
        "@profile\ndef f(): pass",
        "profile(x)",
        "profiler.profile(x)",
        "profile_memory(activities=a)",
        "print(torch.is_anomaly_enabled())",
    ],
)
def test_what_turns_nothing_on_is_not_found(line: str) -> None:
    assert find_switches(ast.parse(line)) == []
