"""The edit of a notebook: the cell of the proof, whole, ready to paste."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("libcst")

from patch_cases import (
    BF16,
    COMPILE,
    FUSED,
    MATMUL,
    SCRIPT,
    WHOLE,
    patch_of,
    recipe_of,
    sites_of,
)
from steptime.patch.notebook_cells import NotebookCell, find_cell, hash_of_kernel, read_cells
from steptime.patch.values import CannotPlaceError, Handover
from steptime.report.text.handover_text import handover_lines
from steptime.tune.values.site_values import EditSite
from steptime.tune.values.study_values import Applied

COMMAND = ("jupyter", "nbconvert", "--to", "notebook", "--execute", "x.ipynb", "--output", "y")
IMPORTS = "%matplotlib inline\nimport torch\nfrom torch import nn"
MAKES = (
    "!ls\nmodel = nn.Linear(8, 1)\n"
    "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)  # slow"
)
TRAINS = (
    "for step in range(9):\n    optimizer.zero_grad()\n    out = model(x)\n"
    "    out.sum().backward()\n    optimizer.step()"
)


def file_of(text: str) -> str:
    return f"/tmp/ipykernel_3/{hash_of_kernel(text)}.py"


def write_notebook(folder: Path, *texts: str) -> None:
    cells = [{"cell_type": "markdown", "metadata": {}, "source": ["# A training"]}]
    cells += [
        {"cell_type": "code", "metadata": {}, "source": one.splitlines(True)} for one in texts
    ]
    (folder / "x.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}))


def sites_in(text: str) -> tuple[EditSite, ...]:
    python = text.replace("!ls", "'!'").replace("%matplotlib inline", "'%'")
    traits = {"optimizer": ("notebook",), "model_call": ("notebook", "output:float")}
    return sites_of(python, file=file_of(text), **traits)


def patch_notebook(folder: Path, *state: Applied, texts: tuple[str, ...] = ()) -> Handover:
    write_notebook(folder, *(texts or (IMPORTS, "  ", MAKES, TRAINS)))
    sites = (*sites_in(MAKES), *sites_in(TRAINS))
    return patch_of(folder, recipe_of(SCRIPT, *state, sites=sites, command=COMMAND))


def test_cells_are_named_as_a_kernel_names_them() -> None:
    # What ipykernel 7.4 named a cell.
    assert (
        hash_of_kernel(
            "for epoch in range(200):\n    for x, y in loader:\n        optimizer.zero_grad()\n"
            "        loss = nn.functional.mse_loss(model(x), y)\n        loss.backward()\n"
            "        optimizer.step()"
        )
        == 3602272210
    )


def test_the_hash_of_a_kernel_is_ours() -> None:
    compiler = pytest.importorskip("ipykernel.compiler")
    for text in ("", "a", "ab", "abc", "é = 1\n", MAKES):
        wanted = compiler.murmur2_x86(text, compiler.get_tmp_hash_seed())
        assert hash_of_kernel(text) == wanted


def test_the_whole_cell_is_said_and_the_diff_is_empty(tmp_path: Path) -> None:
    found = patch_notebook(tmp_path, FUSED)

    (cell,) = found.cells
    assert found.diff == b""
    assert not found.by_hand
    assert (cell.notebook, cell.number) == ("x.ipynb", 2)
    assert cell.text == MAKES.replace("lr=1e-2)", "lr=1e-2, fused=True)")
    assert found.placed[0].places == ("x.ipynb, cell 2:3",)
    lines = handover_lines(found, diff_file=None)
    assert lines[2] == (
        "Paste this into cell 2 of x.ipynb (In [2] from the top), in place of all it holds:"
    )
    assert "\n".join(lines[4:]) == cell.text


def test_the_notebook_that_a_check_runs_has_the_cells(tmp_path: Path) -> None:
    found = patch_notebook(tmp_path, FUSED, BF16)

    cells = json.loads(found.files["x.ipynb"])["cells"]
    assert cells[0]["source"] == ["# A training"]
    assert "".join(cells[1]["source"]) == IMPORTS
    assert "fused=True" in cells[3]["source"]
    assert "with torch.autocast(" in cells[4]["source"]
    assert [cell.number for cell in found.cells] == [2, 3]


def test_a_model_is_compiled_in_the_cell_that_makes_it(tmp_path: Path) -> None:
    (cell,) = patch_notebook(tmp_path, COMPILE).cells
    assert cell.number == 2
    assert cell.text.splitlines()[2] == 'model.compile(options={"fallback_random": True})'


def test_a_model_that_a_cell_makes_in_a_branch_is_compiled_behind_it(tmp_path: Path) -> None:
    texts = (IMPORTS, MAKES, "if wide:\n    for _ in '1':\n        model = Wide()", TRAINS)
    (cell,) = patch_notebook(tmp_path, COMPILE, texts=texts).cells
    assert cell.number == 3
    assert cell.text.splitlines()[3].startswith("model.compile(")


def test_a_model_that_no_cell_above_makes_is_left_alone(tmp_path: Path) -> None:
    (one,) = patch_notebook(tmp_path, COMPILE, texts=(IMPORTS, TRAINS, MAKES)).by_hand
    assert one.reason == "It is not clear where in x.ipynb, cell 2 `model` gets its model."
    assert one.place == "x.ipynb, cell 2:3"


def test_lines_of_the_beginning_stand_behind_the_first_imports(tmp_path: Path) -> None:
    (cell,) = patch_notebook(tmp_path, MATMUL).cells
    assert cell.number == 1
    assert cell.text == f'{IMPORTS}\n\ntorch.set_float32_matmul_precision("medium")'

    (one,) = patch_notebook(tmp_path, MATMUL, texts=("import os", MAKES, TRAINS)).by_hand
    assert one.reason == "No cell of the notebook begins with an import of torch."


def test_a_class_stands_above_a_cell_without_imports(tmp_path: Path) -> None:
    text = "l = DataLoader(d)"
    write_notebook(tmp_path, IMPORTS, text)
    traits = ("notebook", "dataset:TensorDataset", "tensor_dataset")
    sites = sites_of(text, file=file_of(text), loader=traits)
    (cell,) = patch_of(tmp_path, recipe_of(SCRIPT, WHOLE, sites=sites, command=COMMAND)).cells
    lines = cell.text.splitlines()
    assert lines[:4] == ["import torch", "", "", lines[3]]
    assert lines[-3:-1] == ["", ""]
    assert lines[-1].startswith("l = DataLoader(WholeBatches(d)")


def test_calls_by_name_are_changed_in_the_cells_of_the_proof(tmp_path: Path) -> None:
    compiled = TRAINS + "\nnet = torch.compile(net)"
    write_notebook(tmp_path, IMPORTS, MAKES, compiled)
    sites = (*sites_in(MAKES), *sites_in(compiled))
    eager = Applied(name="no_compile", settings={})
    found = patch_of(tmp_path, recipe_of(SCRIPT, eager, sites=sites, command=COMMAND))
    assert [cell.text for cell in found.cells] == [TRAINS + "\nnet = net"]


def test_a_cell_that_was_changed_is_left_alone(tmp_path: Path) -> None:
    (one,) = patch_notebook(tmp_path, FUSED, texts=(IMPORTS, MAKES + "\n", TRAINS)).by_hand
    assert "in no notebook that the command names, as it was at the proof" in one.reason
    assert one.place == f"{file_of(MAKES)}:3"
    assert one.lines


def test_a_cell_that_stands_twice_is_left_alone(tmp_path: Path) -> None:
    (one,) = patch_notebook(tmp_path, FUSED, texts=(IMPORTS, MAKES, MAKES, TRAINS)).by_hand
    assert one.reason.endswith("stands twice: x.ipynb, cell 2 and x.ipynb, cell 3.")


def test_what_is_no_python_in_a_cell_is_left_alone(tmp_path: Path) -> None:
    text = "    %time opt = 1\nopt = AdamW(p)"
    write_notebook(tmp_path, text)
    sites = sites_of("1\nopt = AdamW(p)", file=file_of(text), optimizer=("notebook",))
    (one,) = patch_of(tmp_path, recipe_of(SCRIPT, FUSED, sites=sites, command=COMMAND)).by_hand
    assert "x.ipynb, cell 1 cannot be read as Python" in one.reason


def test_a_cell_that_ipython_ran_from_a_notebook_is_found(tmp_path: Path) -> None:
    compilerop = pytest.importorskip("IPython.core.compilerop")
    write_notebook(tmp_path, "x = 1", "y = 2\nz = 3")
    cells = read_cells(("ipython", "x.ipynb"), folder=tmp_path)

    assert find_cell(cells, compilerop.code_name("y = 2\nz = 3\n", 1)).number == 2
    with pytest.raises(CannotPlaceError):
        find_cell(cells, compilerop.code_name("y = 2\n", 1))


@pytest.mark.parametrize("text", ["[]", "{}", '{"cells": 3}', '{"cells": [3]}', "no json", "\xff"])
def test_what_is_no_notebook_has_no_cells(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.ipynb").write_bytes(text.encode("latin-1"))
    assert read_cells(COMMAND, folder=tmp_path) == ()
    assert read_cells(("jupyter", "none.ipynb"), folder=tmp_path) == ()


def test_the_notebook_that_is_written_is_not_read(tmp_path: Path) -> None:
    write_notebook(tmp_path, "x = 1")
    command = ("jupyter", "nbconvert", "--output", "x.ipynb", "--execute", "x.ipynb")
    assert read_cells(command, folder=tmp_path) == (NotebookCell("x.ipynb", 1, 1, "x = 1"),)
