"""Few tests may fail once, each for a reason that is written down, and no other one."""

import ast
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "scripts" / "_second_try.py"
AT_MOST = 3


def second_try():
    spec = importlib.util.spec_from_file_location("second_try", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_at_most_three_tests_have_a_second_try_each_with_its_reason():
    found = second_try().listed()

    assert len(found) <= AT_MOST
    for test, reason in found.items():
        file, _, function = test.partition("::")
        names = {getattr(node, "name", "") for node in ast.parse((ROOT / file).read_text()).body}
        assert function.partition("[")[0] in names, test
        assert len(reason.split()) > 5, test


def test_a_test_that_is_not_listed_takes_the_second_try_from_the_others(tmp_path):
    failed = [*second_try().listed(), "tests/unit/test_units.py::test_nothing_of_this_name"]
    (tmp_path / "lastfailed").write_text(json.dumps(dict.fromkeys(failed, True)))

    words = [sys.executable, SCRIPT, tmp_path / "lastfailed"]
    done = subprocess.run(words, capture_output=True, text=True)

    assert done.stdout == ""
    assert "failed, and has no second try: tests/unit/test_units.py::test_nothing" in done.stderr
