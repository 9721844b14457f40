"""The figures of our benchmarks of levers are those that were saved, and each has its row."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from steptime.levers import NAMES
from steptime.levers._own_figures import FIGURES
from steptime.levers._switch_evidence import CASES, case_name

ROOT = Path(__file__).resolve().parent.parent.parent
SHOWN = {
    file: {case_name(file, lever, case) for lever, rows in levers.items() for _, case, _ in rows}
    for file, levers in CASES.items()
}


def generate(how):
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "gen_lever_figures.py"), how],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_figures_are_those_that_were_saved():
    module = ROOT / "src" / "steptime" / "levers" / "_own_figures.py"

    found = generate("--stdout")

    assert found == module.read_text(encoding="utf-8"), "run scripts/gen_lever_figures.py"


def test_the_table_of_small_trainings_is_made_of_them():
    page = ROOT / "docs" / "explanation" / "tried.md"

    assert generate("--table") in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("file", ["lever_switches", "own_compile"])
def test_each_figure_is_on_the_page_of_its_lever(file):
    assert set(FIGURES.get(file, ())) <= SHOWN[file]


def test_the_figures_are_of_levers_that_are_there():
    assert {lever for levers in CASES.values() for lever in levers} <= set(NAMES)


def test_each_range_holds_its_figure():
    figures = [one for cases in FIGURES.values() for rows in cases.values() for one in rows]

    assert figures
    assert all(low <= speedup <= high for _, speedup, low, high, _ in figures)


@pytest.mark.parametrize("file", sorted(SHOWN))
def test_each_row_on_a_page_names_a_case_of_its_benchmark(file):
    sources = {
        "lever_switches": "_switch_trainings.py",
        "own_compile": "own_compile.py",
        "ranks_and_memory_levers": "ranks_and_memory_levers.py",
    }
    text = (ROOT / "benchmarks" / sources[file]).read_text(encoding="utf-8")

    cases = {case for rows in CASES[file].values() for _, case, _ in rows}
    assert [case for case in cases if json.dumps(case.partition(": ")[0]) not in text] == []
