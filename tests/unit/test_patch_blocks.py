"""The edit that compiles the blocks of a model, and what the guest tells of them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("libcst")

from patch_cases import changed_lines, patched, sites_of
from steptime.guest.trial.looks.edit_sites import SiteNotes, describe_blocks
from steptime.patch.values import Handover
from steptime.tune.values.study_values import Applied

BLOCKS = Applied(name="compile", settings={"mode": "default", "scope": "blocks"})
WORDS = '(options={"fallback_random": True})'


def patch_blocks(folder: Path, source: str, *traits: str) -> Handover:
    return patched(folder, source, BLOCKS, sites=sites_of(source, model_call=traits))


def test_blocks_are_compiled_behind_the_last_name_of_their_model(tmp_path: Path) -> None:
    source = "model = Net()\nif parallel:\n    model = DDP(model)\nfor x in xs:\n    model(x)\n"
    found = patch_blocks(tmp_path, source, "block:Layer")

    assert not found.by_hand
    assert found.placed[0].places == ("train.py:5",)
    assert found.files["train.py"].decode().splitlines()[2:7] == [
        "    model = DDP(model)",
        "for block in model.modules():",
        '    if type(block).__name__ == "Layer":',
        f"        block.compile{WORDS}",
        "for x in xs:",
    ]


def test_blocks_of_two_classes_and_a_name_that_is_taken(tmp_path: Path) -> None:
    source = "block = Net()\nnet = block\nnet(x)\n"
    found = patch_blocks(tmp_path, source, "block:Decoder", "block:Encoder")

    assert changed_lines(found) == [
        "+for model_block in net.modules():",
        '+    if type(model_block).__name__ in ("Decoder", "Encoder"):',
        f"+        model_block.compile{WORDS}",
    ]


def test_a_model_without_blocks_stays_as_it_is(tmp_path: Path) -> None:
    source = "net = Net()\nnetD = Other()\ny = netD(x)\nnet(y)\n"
    other, net = sites_of(source)
    sites = (replace(other, traits=("no_blocks",)), replace(net, traits=("block:Layer",)))
    found = patched(tmp_path, source, BLOCKS, sites=sites)

    assert changed_lines(found)[0] == "+for block in net.modules():"
    assert len(changed_lines(found)) == 3
    assert not found.by_hand


@pytest.mark.parametrize(
    ("traits", "says"),
    [
        ((), "does not say which classes"),
        (("hooked_blocks",), "has hooks"),
        (("unnamed_blocks",), "with the name of a block's class"),
        (('block:X" or quit()',), "does not say which classes"),
    ],
)
def test_blocks_that_are_not_known_by_name_are_said(
    tmp_path: Path, traits: tuple[str, ...], says: str
) -> None:
    found = patch_blocks(tmp_path, "net = Net()\nnet(x)\n", *traits)

    (one,) = found.by_hand
    assert says in one.reason
    assert one.lines.startswith("for block in model.layers:")
    assert found.diff == b""


def test_where_only_the_models_name_is_unclear_the_lines_are_exact(tmp_path: Path) -> None:
    source = "def run(model):\n    model(x)\nrun(Net())\n"
    (one,) = patch_blocks(tmp_path, source, "block:Layer").by_hand

    assert "no name of its own" in one.reason
    assert one.place == "train.py:2"
    assert one.lines.splitlines()[1] == '    if type(block).__name__ == "Layer":'


def test_a_scope_that_no_edit_knows_is_said(tmp_path: Path) -> None:
    newer = Applied(name="compile", settings={"mode": "default", "scope": "stages"})
    (one,) = patched(tmp_path, "net = Net()\nnet(x)\n", newer).by_hand
    assert one.reason == "There is no edit yet for its scope `stages`."


# -- what the guest tells


@pytest.fixture
def layers() -> Any:
    torch = pytest.importorskip("torch")

    class Layer(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

    return torch.nn.Sequential(torch.nn.Linear(2, 2), *(Layer() for _ in range(3)))


def test_the_classes_of_blocks_are_told(layers: Any) -> None:
    import torch

    assert describe_blocks(torch, layers) == ["block:Layer"]
    assert describe_blocks(torch, layers[0]) == ["no_blocks"]
    layers[1].one.register_forward_hook(lambda *_: None)
    assert describe_blocks(torch, layers) == ["hooked_blocks"]


def test_another_module_with_a_blocks_name_is_told(layers: Any) -> None:
    import torch

    layers.append(type("Layer", (torch.nn.Module,), {})())
    assert describe_blocks(torch, layers) == ["unnamed_blocks"]


def test_a_model_whose_blocks_cannot_be_read_is_placed_all_the_same(layers: Any) -> None:
    import torch

    layers.modules = None
    failures: list[str] = []
    notes = SiteNotes(torch, failures.append)
    notes.see_call(layers, (), {})

    assert failures == ["sites"]
    assert notes.describe([], [])[0]["traits"] == []


# -- the same training

TRAINING = """\
import torch
from torch import nn

torch.compiler.set_stance(force_backend="aot_eager")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(8), nn.Linear(8, 8)
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        return x + self.drop(torch.tanh(self.mix(self.norm(x))))


torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(8, 8), *(Block() for _ in range(3)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.randn(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


@pytest.mark.slow("the script runs twice, and torch's compiler is imported")
def test_the_script_trains_as_before_with_its_blocks_compiled(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    told = "print([name for name, one in model.named_modules() if one._compiled_call_impl])\n"
    graphs = "from torch._dynamo.utils import counters\nprint(counters['stats']['unique_graphs'])\n"
    source = TRAINING + told + graphs
    found = patch_blocks(tmp_path, source, "block:Block")
    outputs = []
    for data in (source.encode(), found.files["train.py"]):
        (tmp_path / "train.py").write_bytes(data)
        done = subprocess.run(
            [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout.splitlines())

    before, after = outputs
    assert after[:3] == before[:3]
    assert (before[3], after[3]) == ("[]", "['1', '2', '3']")
    assert (before[4], after[4]) == ("0", "1"), "blocks of one form share a graph"
