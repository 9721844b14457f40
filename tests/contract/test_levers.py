"""Each lever of ours keeps the contract that other people's have to keep."""

import inspect
import subprocess
import sys
from pathlib import Path
from unittest import SkipTest

import pytest

from steptime.levers import NAMES, load
from steptime.levers.lever_evidence import all_evidence, evidence_of
from steptime.testing.levers import LeverContract

PROMISES = [name for name in vars(LeverContract) if name.startswith("test_")]


@pytest.mark.parametrize("promise", PROMISES)
def test_every_lever_keeps_this_promise(promise, tmp_path):
    test = getattr(LeverContract(), promise)
    more = {"tmp_path": tmp_path} if "tmp_path" in inspect.signature(test).parameters else {}
    broken = {}
    for name in NAMES:
        try:
            test(lever=load(name), **more)
        except SkipTest:
            continue
        except Exception as error:
            broken[name] = repr(error)
        finally:
            if "torch._dynamo" in sys.modules:  # what one lever compiled is nothing to the next
                sys.modules["torch"].compiler.reset()
    assert broken == {}


ROOT = Path(__file__).resolve().parent.parent.parent


def test_our_own_evidence_is_in_the_repository():
    sources = {one.source for name in NAMES for one in evidence_of(load(name))}

    ours = [source for source in sources if not source.startswith("https://")]
    assert [source for source in ours if not (ROOT / source.partition("#")[0]).is_file()] == []


def test_there_is_no_evidence_of_a_lever_that_is_not_there():
    assert set(all_evidence()) <= set(NAMES)


def test_the_evidence_is_what_the_benchmarks_saved():
    script = str(ROOT / "scripts" / "gen_lever_evidence.py")
    made = subprocess.run([sys.executable, script, "--stdout"], capture_output=True, text=True)
    saved = (ROOT / "src" / "steptime" / "levers" / "evidence.json").read_text(encoding="utf-8")

    assert made.stdout == saved, f"run scripts/gen_lever_evidence.py {made.stderr}"
