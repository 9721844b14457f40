"""Cells of a notebook: those that `%%steptime` observes, and those of a notebook under `run`."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import (
    HERE,
    SCRIPTS,
    Done,
    fork_bare,
    needs_linux,
    needs_torch,
    rows,
    run_folder,
    run_forked,
    run_observed,
    show,
    start_bare,
)

pytestmark = [
    needs_torch,
    needs_linux,
    pytest.mark.skipif(find_spec("IPython") is None, reason="IPython is not installed"),
]
needs_nbconvert = pytest.mark.skipif(
    find_spec("nbconvert") is None or find_spec("ipykernel") is None,
    reason="nbconvert or ipykernel is not installed",
)

EXAMPLE = HERE.parents[1] / "examples" / "notebook" / "slow_images.ipynb"

LOSS_LINE, BACKWARD_LINE = 5, 6
"""Of the cell that trains; the magic is on line 1."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which all cells of the script have run, in one shell."""
    folder = tmp_path_factory.mktemp("cells")
    done = fork_bare(folder, "python", SCRIPTS / "cells.py", folder / "found.json").finish()
    assert done.exit_code == 0, done.stderr.decode()
    return folder


@pytest.fixture(scope="module")
def cells(folder: Path) -> Mapping[str, Any]:
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return found


def shown(cell: Mapping[str, Any]) -> dict[str, str]:
    """What one cell showed: a bundle by MIME type."""
    (bundle,) = cell["shown"]
    return dict(bundle)


# -- a cell that trains


def test_a_cell_gives_what_it_gives_without_the_magic(cells: Mapping[str, Any]) -> None:
    trained = cells["3"]
    assert (trained["count"], trained["error"]) == (3, None)
    assert float(trained["result"]) > 0


def test_its_report_names_the_lines_of_cells(folder: Path, cells: Mapping[str, Any]) -> None:
    text = shown(cells["3"])["text/plain"]
    assert "60" in text
    assert f"cell 3, line {BACKWARD_LINE}" in text
    assert "ipython-input" not in text
    run = re.search(r"\d{8}-\d{6}-[0-9a-f]{4}", text)
    assert run is not None
    data = show(folder, run[0])
    assert (data["num_steps"], data["command"][0]) == (60, "%%steptime")
    sites = {(site["what"], site["file"], site["line"]): site["text"] for site in data["sites"]}
    assert sites["forward", "cell 3", LOSS_LINE] == "loss = criterion(model(x), y)"
    assert sites["backward", "cell 3", BACKWARD_LINE] == "loss.backward()"
    assert data["end"]["state"] == "finished"
    assert "guest_failures" not in {note["code"] for note in data["notes"]}


def test_the_machine_was_sampled_beside_it(folder: Path, cells: Mapping[str, Any]) -> None:
    text = shown(cells["3"])["text/plain"]
    run = re.search(r"\d{8}-\d{6}-[0-9a-f]{4}", text)
    assert run is not None
    record = json.loads((folder / ".steptime/runs" / run[0] / "command.json").read_text())
    assert record["num_sample_failures"] == 0
    assert (folder / ".steptime/runs" / run[0] / "host.jsonl").is_file()


def test_the_page_is_in_a_frame_that_runs_and_fetches_nothing(cells: Mapping[str, Any]) -> None:
    markup = shown(cells["3"])["text/html"]
    assert len(markup) < 300_000
    assert "sandbox title" in markup
    page = html.unescape(re.findall(r'srcdoc="([^"]*)"', markup)[0])
    assert page.startswith("<!DOCTYPE html>")
    assert "default-src 'none'; script-src 'none'" in html.unescape(page)
    assert "Environment" not in page, "a notebook is handed on"
    assert "<script" not in page
    assert not re.search(r"""src\s*=|href\s*=\s*"[^#]|https?://|url\(""", page)
    assert f"cell 3, line {BACKWARD_LINE}" in page
    assert "the report as text" in markup


def test_the_last_report_is_shown_again(cells: Mapping[str, Any]) -> None:
    assert shown(cells["4"]) == shown(cells["3"])


# -- cells that end otherwise


def test_an_error_is_the_cells_own_and_the_run_has_it(cells: Mapping[str, Any]) -> None:
    assert cells["5"]["error"] == ["ValueError", "of the cell"]
    assert "failed with exit code 1" in shown(cells["5"])["text/plain"]


def test_an_interrupt_is_a_kill(cells: Mapping[str, Any]) -> None:
    assert cells["6"]["error"][0] == "KeyboardInterrupt"
    assert "SIGINT" in shown(cells["6"])["text/plain"]


def test_what_is_not_for_a_cell_is_said_and_nothing_runs(cells: Mapping[str, Any]) -> None:
    name, text = cells["7"]["error"]
    assert name == "UsageError"
    assert "%%steptime has no --count" in text
    assert "never" not in cells["names"]


def test_another_magic_may_follow(folder: Path, cells: Mapping[str, Any]) -> None:
    assert cells["8"]["error"] is None
    assert cells["names"]["with_time"] == 1
    assert (folder / "elsewhere/.steptime/runs").is_dir()
    assert "without a step" in shown(cells["8"])["text/plain"]


def test_below_another_magic_it_says_where_it_belongs(cells: Mapping[str, Any]) -> None:
    assert cells["names"]["below"] == 1
    assert "must be on the first line" in shown(cells["9"])["text/plain"]


def test_a_run_that_is_not_there_is_said(cells: Mapping[str, Any]) -> None:
    name, text = cells["10"]["error"]
    assert name == "UsageError"
    assert "there is no run `1999`" in text


def test_it_can_be_unloaded_and_loaded_again(cells: Mapping[str, Any]) -> None:
    assert (cells["11"]["error"], cells["12"]["error"][0]) == (None, "UsageError")
    assert cells["names"]["programmatic"] == 1
    assert "without a step" in shown(cells["14"])["text/plain"]
    assert "LateFinder" not in cells["hooks"]


def test_a_cell_may_await(cells: Mapping[str, Any]) -> None:
    assert cells["15"]["error"] is None
    assert cells["names"]["awaited"] == 1
    assert "without a step" in shown(cells["15"])["text/plain"]


def test_a_profiler_runs_around_a_few_steps_of_a_cell(
    folder: Path, cells: Mapping[str, Any]
) -> None:
    assert cells["16"]["error"] is None
    text = shown(cells["16"])["text/plain"]
    run = re.search(r"\d{8}-\d{6}-[0-9a-f]{4}", text)
    assert run is not None
    (rank,) = show(folder, run[0])["profile"]["ranks"]
    assert (rank["missing"], rank["num_steps"]) == (None, 3)
    assert (folder / ".steptime/runs" / run[0] / "profile/rank-0.pt.trace.json.gz").is_file()


# -- a whole notebook under `steptime run`


@pytest.mark.slow("a shell of IPython is observed as a whole, and its page is drawn")
def test_in_a_shell_under_run_sites_are_cells_and_the_magic_steps_aside(tmp_path: Path) -> None:
    done = run_forked(tmp_path, "python", SCRIPTS / "cells.py", tmp_path / "found.json")
    assert done.exit_code == 0, done.stderr.decode()
    check_sites(done)
    found = json.loads((tmp_path / "found.json").read_text())
    assert "runs under `steptime run`" in shown(found["3"])["text/plain"]
    told = [one for one in rows(run_folder(tmp_path) / "processes.jsonl") if one["k"] == "cells"]
    assert any(text is not None for line in told for _, _, text in line["cells"])


def check_sites(done: Done) -> None:
    """The lines of the third cell are named as such."""
    places = {(site["what"], site["file"], site["line"]) for site in done.data["sites"]}
    assert ("backward", "cell 3", BACKWARD_LINE) in places
    assert all("ipy" not in file for _, file, _ in places)
    # Which of them the text names is a question of their times.
    assert re.search(r"cell 3, lines? \d", done.stderr.decode())


@needs_nbconvert
@pytest.mark.slow("a kernel and a converter start, and import torch")
def test_the_example_says_in_a_real_kernel_what_holds_it_back(tmp_path: Path) -> None:
    shutil.copy(EXAMPLE, tmp_path)
    done = start_bare(
        tmp_path,
        *("jupyter", "nbconvert", "--to", "notebook", "--execute", EXAMPLE.name),
        *("--output", "executed.ipynb"),
        IPYTHONDIR=str(tmp_path / "ipython"),
    ).finish()
    assert done.exit_code == 0, done.stderr.decode()
    cells = json.loads((tmp_path / "executed.ipynb").read_text())["cells"]
    trained, again = [
        "".join(one["data"]["text/plain"]) for c in cells[-2:] for one in c["outputs"]
    ]
    assert trained == again
    assert "input-bound" in trained
    assert "cell 3, line 2" in trained  # the loop over the loader
    assert "text/html" in cells[-2]["outputs"][0]["data"]


@needs_nbconvert
@pytest.mark.slow("a kernel and a converter start, and import torch")
def test_a_notebook_that_is_executed_under_run_is_reported_by_cell(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec((SCRIPTS / "cells.py").read_text().partition("CELLS =")[0], names)
    train = names["TRAIN"].replace("%%steptime", "#")
    cells = [
        {"cell_type": "markdown", "id": "a", "metadata": {}, "source": "# A training"},
        *(
            {
                "cell_type": "code",
                "id": f"c{number}",
                "metadata": {},
                "execution_count": None,
                "outputs": [],
                "source": source,
            }
            for number, source in enumerate((names["DEFINE"], "1 + 1", train))
        ),
    ]
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "notebook.ipynb").write_text(json.dumps(notebook))
    done = run_observed(
        tmp_path,
        *("jupyter", "nbconvert", "--to", "notebook", "--execute", "notebook.ipynb"),
        IPYTHONDIR=str(tmp_path / "ipython"),
    )
    assert done.exit_code == 0, done.stderr.decode()
    check_sites(done)
    assert done.data["num_steps"] == 60
