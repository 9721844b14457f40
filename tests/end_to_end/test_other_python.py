"""Another interpreter as one more arm between processes: a real environment beside ours."""

from __future__ import annotations

import os
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import pytest

from plain_child import PlainStart
from steptime.levers import load
from steptime.tune.search.bench import ProcessRequest
from steptime.tune.study.study_folder import open_study
from steptime.tune.trials.facts.other_python import check_other_python
from steptime.tune.trials.observe_baseline import ParentFacts
from steptime.tune.trials.real_bench import RealBench, Subject
from steptime.tune.values.study_values import Applied

pytestmark = [
    pytest.mark.skipif(find_spec("torch") is None, reason="trials train, with torch"),
    pytest.mark.slow("three processes that import torch, one after another"),
]

TINY = Path(__file__).parent / "scripts" / "stoppable.py"
COMMAND = ("python", "train.py")


def make_environment(folder: Path) -> Path:
    """An environment of the same Python, which finds our packages; its interpreter."""
    real = Path(sys.executable).resolve()
    packages = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (folder / "pyvenv.cfg").write_text(f"home = {real.parent}\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(real)
    return folder / "bin" / "python"


def test_it_runs_the_candidate_and_not_the_reference(tmp_path: Path) -> None:
    python = make_environment(tmp_path / "other")
    script = "import sys\nprint(sys.prefix, flush=True)\n" + TINY.read_text("utf-8")
    (tmp_path / "train.py").write_text(script)
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": search}
    other = check_other_python(str(python), COMMAND, environment)
    study = open_study(tmp_path, "key", budget_s=600.0)
    lever = load("interpreter")
    libraries = {"python": other.path}
    subject = Subject(
        argv=COMMAND,
        environment=environment,
        levers={lever.name: lever},
        surroundings=ParentFacts(cwd=tmp_path, libraries=libraries, environment_names=()),
        budget_s=30.0,
    )
    bench = RealBench(subject, study, PlainStart(COMMAND, tmp_path), lambda: None)
    state = (Applied(name=lever.name, settings={"python": other.path}),)

    found = bench.compare_processes(ProcessRequest(reference=(), candidate=state, num_pairs=1))

    assert found.ending.is_well
    assert len(found.arms[0].log_ratios) == 1
    outputs = [path.read_text() for path in sorted(study.folder.glob("trials/*/stdout"))]
    assert [text.split()[0] for text in outputs] == [sys.prefix, str(tmp_path / "other")]
