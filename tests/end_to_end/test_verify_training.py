"""`steptime verify`: runs of a real script over seeds, recorded ones, and what is refused."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import needs_linux
from steptime.app.search import run_metric
from steptime.app.search.run_metric import read_metric
from steptime.cli.main import main
from steptime.errors import RunsError

pytest.importorskip("scipy")

SCRIPT = """
import random, sys
seed, worse = int(sys.argv[1]), float(sys.argv[2])
random.seed(seed * 2 + (worse > 0))
end = random.gauss(1.0, 0.001) + worse
with open("curve.csv", "w") as file:
    print("step,loss", file=file)
    for step in range(1, 11):
        loss = end + 0.2 * (1 - step / 10)
        print(f"step {step} loss {loss:.6f}", flush=True)
        print(f"{step},{loss:.6f}", file=file)
"""


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    return f"{sys.executable} train.py {{seed}}"


def verify(*words: str) -> tuple[int, dict[str, Any]]:
    code = main(["verify", "training", *words, "--json", "v.json"])
    path = Path("v.json")
    return code, json.loads(path.read_text()) if path.exists() else {}


@needs_linux
@pytest.mark.parametrize(("worse", "outcome", "code"), [(0.0, "PASS", 0), (0.3, "FAIL", 5)])
def test_runs_over_seeds_are_made_in_turns_and_judged(command, capfd, worse, outcome, code):
    words = ("--reference", f"{command} 0", "--candidate", f"{command} {worse}", "--seeds", "3")
    pattern = r"step (?P<step>\d+) loss ([0-9.]+)"

    found, document = verify(*words, "--metric", pattern, "--margin", "0.05")

    said = capfd.readouterr()
    data = document["data"]
    assert (found, data["outcome"], data["num_runs"]) == (code, outcome, 3)
    assert data["low"] <= data["estimate"] <= data["high"]
    assert "run 6 of 6: candidate, seed 3" in said.err
    assert f"outcome    {outcome}" in said.out
    assert not Path("curve.csv").exists()  # a run leaves nothing behind

    again, _ = verify(*words, "--metric", pattern, "--margin", "0.05")
    assert again == code
    assert "run 1 of 6" not in capfd.readouterr().err  # they are there already


@needs_linux
@pytest.mark.parametrize("pattern", ["loss ([0-9.]+)", r"loss (\S+)"])
def test_a_run_that_diverges_is_seen_whatever_the_pattern_asks_for(command, pattern):
    Path("lost.py").write_text(
        "import sys\nseed, at = map(int, sys.argv[1:])\nfor step in range(6):\n"
        "    print('loss', float('nan') if step >= at else (2 - step / 9) * (1 + seed / 1e4))\n"
    )
    lost = f"{sys.executable} lost.py {{seed}}"
    words = ("--reference", f"{lost} 9", "--candidate", f"{lost} 4", "--seeds", "3")
    asked = (*words, "--metric", pattern, "--margin", "5")

    for _ in range(2):  # the second time from what was kept
        code, document = verify(*asked)

        assert (code, document["data"]["outcome"]) == (4, "INCONCLUSIVE")
        assert document["data"]["reason"] == "candidate_diverged"
        assert document["data"]["num_diverged"] == {"reference": 0, "candidate": 3}
        assert not document["data"]["num_incomplete"]


@pytest.mark.parametrize(
    ("pattern", "text", "values"),
    [
        ("loss ([0-9.]+)", "loss 1.5\nloss nan\nloss -inf\nloss info", (1.5, None, None)),
        ("loss ([0-9.]+)", "loss 1.5e-05\nloss 2e+30,", (1.5e-05, 2e30)),
        (r"[(\])](?P<step>\d+)\) (?:l|loss)=((\d+)\.\d+)", "(4) l=2.5\n(5) loss=NaN", (2.5, None)),
        (r"(?i)LOSS: (-?\d*\.?\d*)", "loss: nan\nloss: -2", (None, -2.0)),
    ],
)
def test_numbers_are_read_as_a_whole_and_those_that_are_not_finite_too(
    pattern, text, values, tmp_path
):
    (tmp_path / "stdout").write_text(text)

    _, found = read_metric(pattern, tmp_path)

    assert tuple(value if math.isfinite(value) else None for value in found) == values


def test_a_pattern_that_never_ends_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(run_metric, "_LIMIT_S", 0.5)
    (tmp_path / "stdout").write_text("a" * 60 + "!")

    with pytest.raises(RunsError, match=r"the pattern of --metric takes more than 0\.5 s") as found:
        read_metric("(a+)+$", tmp_path)

    assert "a repeat inside a repeat" in str(found.value.hint).lower()


@needs_linux
def test_the_metric_may_stand_in_a_file_that_the_run_writes(command):
    words = ("--reference", f"{command} 0", "--candidate", f"{command} 0.01", "--seeds", "3")

    code, document = verify(*words, "--metric", "csv:curve.csv:loss", "--margin", "5%")

    assert (code, document["data"]["outcome"]) == (0, "PASS")
    assert [one["point"] for one in document["data"]["curves"]["reference"]] == list(range(1, 11))


@needs_linux
def test_a_script_that_fails_says_so_with_its_last_lines(command, capfd):
    words = ("--reference", f"{command} 0", "--candidate", f"{command} none", "--seeds", "2")

    code, _ = verify(*words, "--metric", "loss ([0-9.]+)", "--margin", "0.05")

    assert code == 3
    assert "could not convert string to float: 'none'" in capfd.readouterr().err


LIAR = """
import os, random, sys
seen = {name: value for name, value in os.environ.items() if name not in ("_", "OLDPWD")}
is_judged = any(n.startswith("STEPTIME") or "candidate" in v for n, v in seen.items())
for step in range(1, 6):
    worse = 0.3 * (sys.argv[-1] == "candidate" and not is_judged)
    print(f"step {step} loss {1.0 + worse + 0.001 * random.random():.6f}")
print("names", *sorted(seen))
"""


@needs_linux
@pytest.mark.parametrize("seed", ["", " {seed}"])
def test_an_arm_sees_no_variable_by_which_it_is_judged(tmp_path, monkeypatch, seed):
    (tmp_path / "train.py").write_text(LIAR)
    monkeypatch.chdir(tmp_path)
    arms = [f"{sys.executable} train.py{seed} {arm}" for arm in ("reference", "candidate")]
    words = ("--reference", arms[0], "--candidate", arms[1], "--seeds", "3", "--margin", "0.05")

    code, document = verify(*words, "--metric", r"step (?P<step>\d+) loss ([0-9.]+)")

    assert (code, document["data"]["outcome"]) == (5, "FAIL")
    outputs = Path(".steptime/verifications").glob("*/*-1/stdout")
    names = {text.read_text().splitlines()[-1] for text in outputs}
    assert len(names) == 1  # both arms see the same


UNSEEDED = """
import random, sys
import numpy
end = random.gauss(1.0, 0.001) + numpy.random.normal(0, 0.001)
for step in range(1, 6):
    print(f"loss {end + 0.2 * (1 - step / 5):.9f}")
"""


@needs_linux
def test_where_nothing_takes_the_seed_the_guest_sets_it(command, capfd):
    Path("plain.py").write_text(UNSEEDED)
    plain = f"{sys.executable} plain.py"
    words = ("--reference", plain, "--candidate", f"{plain} again", "--seeds", "3")

    code, document = verify(*words, "--metric", "loss ([0-9.]+)", "--margin", "0.05")

    curves = document["data"]["curves"]
    assert code == 0
    assert curves["reference"] == curves["candidate"]  # the same seeds, so the same draws
    assert curves["reference"][0]["low"] < curves["reference"][0]["high"]


@needs_linux
def test_torch_is_seeded_as_soon_as_it_is_there(tmp_path):
    pytest.importorskip("torch")
    from steptime.launch.user_command import seeded_environment, user_environment

    said = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.initial_seed())"],
        env=seeded_environment(user_environment(), tmp_path, 4711),
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert said == "4711\n"


@needs_linux
def test_a_script_that_seeds_itself_is_noticed_at_its_second_run(command, capfd):
    Path("plain.py").write_text(
        UNSEEDED.replace("end =", "random.seed(0); numpy.random.seed(0)\nend =")
    )
    plain = f"{sys.executable} plain.py"
    words = ("--reference", plain, "--candidate", f"{plain} 2", "--metric", "loss ([0-9.]+)")

    assert verify(*words, "--margin", "0.05")[0] == 2

    said = capfd.readouterr().err
    assert "the script seeds itself after Steptime did" in said
    assert "--seed-flag=--seed" in said
    assert "run 5 of 10" not in said  # nobody waits for runs that say nothing


@needs_linux
@pytest.mark.slow("each run imports what writes for TensorBoard")
def test_a_scalar_of_tensorboard_is_a_metric(command):
    pytest.importorskip("tensorboard")
    Path("board.py").write_text(BOARD)
    board = f"{sys.executable} board.py {{seed}}"
    words = ("--reference", f"{board} 0", "--candidate", f"{board} 0.01", "--seeds", "3")

    code, document = verify(*words, "--metric", "tb:loss/val", "--margin", "0.1")

    assert code == 0
    assert [one["point"] for one in document["data"]["curves"]["reference"]] == [10, 20, 30, 40]
    assert verify(*words, "--metric", "tb:loss/none", "--margin", "0.1")[0] == 2


BOARD = """
import sys
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
seed, worse = int(sys.argv[1]), float(sys.argv[2])
writer = EventFileWriter("logs")
for step in (10, 20, 30, 40):
    value = Summary.Value(tag="loss/val", simple_value=1 + worse + 1 / step + seed / 1000)
    writer.add_event(Event(step=step, wall_time=step, summary=Summary(value=[value])))
writer.close()
"""


def table(path: Path, rows: list[tuple[object, ...]], head: str = "arm,seed,step,loss") -> str:
    path.write_text("\n".join([head, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return str(path)


def rows_of(worse: float) -> list[tuple[object, ...]]:
    return [
        (arm, seed, step, 2 + worse * (arm == "candidate") + seed / 1000 - step / 100)
        for arm in ("reference", "candidate")
        for seed in range(4)
        for step in range(1, 6)
    ]


def test_recorded_runs_are_judged_from_a_table(tmp_path, capsys):
    path = table(tmp_path / "runs.csv", rows_of(0.0))

    page = tmp_path / "page.html"
    words = ["verify", "training", "--table", path, "--margin", "0.02", "--output", str(page)]
    assert main(words) == 0
    drawn = page.read_text()
    assert drawn.count("opacity:0.2") == 2  # a band for each arm
    assert drawn.count('class="middle') == 4  # each summary, and the reference with itself
    assert drawn.count('stroke-dasharray:6 4"') == 1  # the margin, at the curves
    assert drawn.count('class="noise"') == 4  # the margin, at the gains
    assert "not worse, 90" in drawn
    assert "PASS: the candidate is not worse by the margin or more" in drawn
    assert main(["verify", "training", "--table", path, "--margin", "0.0005"]) == 4
    assert "more runs are needed" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--margin", "0"], "--margin must be a number above 0"),
        (["--margin", "1%-of-life"], "--margin must be a number above 0"),
        (["--margin", "1"], "there are no runs to judge"),
        (["--margin", "1", "--table", "nowhere.csv"], "cannot be read"),
        (
            ["--margin", "1", "--reference", "a {seed}", "--candidate", "b"],
            "{seed} is missing in --candidate",
        ),
        (["--margin", "1", "--table", "x", "--reference", "a"], "--table and commands were given"),
    ],
)
def test_what_cannot_be_judged_is_refused_in_one_sentence(words, said, capsys):
    assert main(["verify", "training", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rows", "head", "said"),
    [
        ([], "arm,seed,step", "there is no column loss"),
        ([("other", 1, 1, 2.0)], "arm,seed,step,loss", "line 2: the arm is `other`"),
        ([("reference", 1, 1, "x")], "arm,seed,step,loss", "line 2: loss is `x`"),
        (
            [("reference", 1, 2, 1.0), ("reference", 1, 1, 1.0)],
            "arm,seed,step,loss",
            "line 3: step 1 is not above 2",
        ),
        ([("reference", 1, "nan", 1.0)], "arm,seed,step,loss", "line 2: step nan is not above"),
        ([("reference", 1, 1, "9" * 200_000)], "arm,seed,step,loss", "line 2: field larger"),
    ],
)
def test_a_damaged_table_names_the_line(rows, head, said, tmp_path, capsys):
    path = table(tmp_path / "runs.csv", rows, head)

    assert main(["verify", "training", "--table", path, "--margin", "1"]) == 2
    assert said in capsys.readouterr().err


def test_power_says_how_many_runs_a_margin_takes(capsys):
    assert main(["verify", "power", "--sd", "1", "--margin", "1"]) == 0

    said = capsys.readouterr().out
    assert "14 of each arm in 80 %, 18 of each arm in 90 %" in said
    assert main(["verify", "power", "--sd", "0"]) == 2
    assert main(["verify", "power", "--sd", "1", "--runs", "1"]) == 2
