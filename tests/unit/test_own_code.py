"""Loops over elements in the user's code: which are found, which are certain to be replaced."""

from __future__ import annotations

import ast
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steptime.measure.source.loop_edits import EXACT, OTHER_RANDOM, Edit, edit_of
from steptime.measure.source.loop_marks import LoopMark, read_loop_rows, write_loop_row
from steptime.measure.source.loop_regions import Region, make_program, region_between
from steptime.measure.source.own_code import OwnCode, loop_rows, unified

SPECIMENS = Path(__file__).parent.parent / "specimens"

# A training loop whose step ends on line 5 and begins again on line 3; `MAKE` makes its batch.
LOOP = """\
for step in range(100):
    {make}
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
"""

PLANTED = {
    "DLRM-like indices": (
        "random_per_element",
        """\
import numpy as np
def make_indices(n, sizes):
    offsets, indices = [], []
    for size in sizes:
        for _ in range(n):
            r = np.random.random(10)
            indices.append(np.unique(np.round(np.random.rand() * (size - 1))))
    return indices
""",
        "x, y = make_indices(batch_size, table_sizes), targets",
        4,
    ),
    "replay buffer": (
        "sampled_one_by_one",
        """\
import random
import torch
buffer = []
def draw(n):
    batch = [buffer[random.randrange(len(buffer))] for _ in range(n)]
    return torch.stack([s for s, _ in batch]), torch.tensor([r for _, r in batch])
""",
        "x, y = draw(256)",
        5,
    ),
    "a list of numbers": (
        "tensor_of_list",
        "import math, torch\n",
        "x = torch.tensor([math.sin(0.1 * k + step) for k in range(length)])",
        3,
    ),
    "appends and a stack": (
        "stack_of_list",
        """\
import torch
def crops(images, n):
    rows = []
    for i in range(n):
        k = i % 7
        rows.append(images[i, k : k + 8])
    return torch.stack(rows)
""",
        "x = crops(images, batch_size)",
        4,
    ),
    "element by element": (
        "element_reads",
        """\
def accuracy(prediction, target):
    right = 0
    for i in range(len(target)):
        if prediction[i] == target[i]:
            right += 1
    return right
""",
        "right += accuracy(logits, y)",
        3,
    ),
    "nested pixels": (
        "element_writes",
        """\
import torch
def brighten(images):
    for b in range(images.size(0)):
        for r in range(images.size(1)):
            for c in range(images.size(2)):
                images[b, r, c] = images[b, r, c] * 1.1 + 0.05
    return images
""",
        "x = brighten(images)",
        3,
    ),
    "growing": (
        "growing_tensor",
        """\
import torch
def gather(parts):
    out = torch.zeros(0, 4)
    for part in parts:
        out = torch.cat([out, part])
    return out
""",
        "x = gather(parts)",
        4,
    ),
    "noise number by number": (
        "random_per_element",
        "import random, torch\n",
        "x = torch.tensor([[random.gauss(0, 1) for _ in range(width)] for _ in range(32)])",
        3,
    ),
    "windows of a text": (
        "stack_of_list",
        """\
import torch
text = torch.randint(64, (10_000,))
def get_batch():
    starts = torch.randint(len(text) - 9, (64,))
    return torch.stack([text[i : i + 8] for i in starts])
""",
        "x = get_batch()",
        5,
    ),
    "items of a list": (
        "element_reads",
        "import torch\n",
        "weights = [v.item() for v in scores]",
        3,
    ),
}


def region(head: str, make: str, *, loop: str = LOOP) -> Region:
    """What lies between the end of a step and the next call of the model."""
    source = head + loop.format(make=make)
    first = head.count("\n") + 1
    return region_between(make_program(ast.parse(source)), first + 4, first + 2)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_loop_is_found_by_its_pattern_and_line(name: str) -> None:
    code, head, make, line = PLANTED[name]

    found = region(head, make)

    assert found.is_plain
    assert next((one.code, one.node.lineno) for one in found.loops) == (code, line)


@pytest.mark.parametrize(
    "make",
    [
        "x = x.to(device)",
        "x = torch.randn(32, 16)",
        "x = torch.stack([s for s in samples])",
        "y = torch.tensor([label for _, label in samples])",
        "z = torch.tensor([0.1 * k for k in range(4)])",
        "norms = [p.grad.norm() for p in model.parameters()]",
        "total = sum(v for v in values)",
        "names = [f'layer{k}' for k in range(n)]",
        "random.shuffle(order)",
        "losses = [(x - y).square().mean().item() for x, y in pairs]",
        "norm = torch.stack([p.grad.norm() for p in self.parameters()]).norm()",
        "for case in cases: found[case] = case.score",
    ],
)
def test_healthy_lines_have_no_loop_over_elements(make: str) -> None:
    assert region("import random, torch\n", make).loops == ()


def test_loops_over_parameters_and_loops_that_train_are_none() -> None:
    source = """\
for p in model.parameters():
    p.data[0] = random.random()
for i in range(n):
    x = data[random.randrange(9)]
    loss = model(x)
    loss.backward()
    optimizer.step()
"""
    tree = ast.parse(source)

    assert region_between(make_program(tree), 1, 7).loops == ()


@pytest.mark.parametrize(
    "make",
    [
        "x = torch.stack([data[i] for i in drawn]); time.sleep(0.01)",
        "x = torch.stack([transform(image) for image in images])",
        "x = torch.tensor([len(t) * 2 for t in tokenizer(texts)])",
        "x = torch.tensor([random.random() for _ in range(n)]); env.step(x)",
    ],
)
def test_lines_with_a_call_that_cannot_be_read_are_not_plain(make: str) -> None:
    assert not region("import random, time, torch\n", make).is_plain


@pytest.mark.parametrize("rest", ["if step % 100 == 0: log(x)", "if n < 1: raise Wrong(name(n))"])
def test_a_rare_branch_does_not_count(rest: str) -> None:
    make = f"x = torch.tensor([random.random() for _ in range(n)])\n    {rest}"

    assert region("import random, torch\n", make).is_plain


def test_markers_inside_a_loop_belong_to_the_loop() -> None:
    source = "def count(x, y):\n    n = 0\n    for i in range(len(x)):\n        n += x[i].item()\n"
    found = region_between(make_program(ast.parse(source)), 4, 4)

    assert found.is_plain
    assert [(one.code, one.node.lineno) for one in found.loops] == [("element_reads", 3)]


def test_the_specimens_have_no_loop_that_would_be_named_but_one_that_cuts_text_in_a_loop() -> None:
    found = {
        (path.name, number)
        for path in sorted(SPECIMENS.glob("*.py"))
        for number in named_lines(path.read_text("utf-8"))
    }

    planted = ("needless.py", 73)  # as rows of it are made one by one on purpose
    assert found == {("small_writer.py", 23), ("small_writer.py", 42), planted}


def named_lines(source: str) -> set[int]:
    """Loops that would be named if six lines of the file were a site, wherever it begins."""
    program = make_program(ast.parse(source))
    last = source.count("\n")
    regions = [region_between(program, first, first + 5) for first in range(1, last - 4, 3)]
    return {r.loops[0].node.lineno for r in regions if r.is_plain and r.loops}


# -- edits


def edited(source: str) -> tuple[str, Edit] | None:
    """The source with the edits of all its loops, and the first edit; None without any."""
    tree = ast.parse(source)
    lines = source.split("\n")
    found = region_between(make_program(tree), 1, len(lines))
    edits = [edit for loop in found.loops if (edit := edit_of(tree, loop)) is not None]
    if not edits:
        return None
    after = list(lines)
    for edit in sorted(edits, key=lambda one: one.start, reverse=True):
        (first, begin), (last, end) = edit.start, edit.end
        text = after[first - 1][:begin] + edit.text + after[last - 1][end:]
        after = [*after[: first - 1], text, *after[last:]]
    return "\n".join(after), edits[0]


SAME = {
    "rows by indices": "data = torch.randn(50, 3)\nat = torch.randint(50, (20,))\n"
    "x = torch.stack([data[i] for i in at])\n",
    "rows by a sample": "data = torch.arange(40)\nat = random.sample(range(40), 9)\n"
    "x = torch.stack([data[i] for i in at])\n",
    "rows by a part of an order": "data = torch.randn(50, 3).double()\nat = torch.randperm(50)\n"
    "x = torch.stack([data[i] for i in at[5:25]])\n",
    "windows": "data = torch.randint(9, (90,))\nat = torch.randint(len(data) - 9, (20,))\n"
    "x = torch.stack([data[i : i + 8] for i in at])\n"
    "y = torch.stack([data[i + 1 : i + 9] for i in at])\n",
    "windows by name": "n = 6\ndata = torch.randn(90, 2)\n"
    "at = torch.randint(len(data) - n, (20,))\n"
    "x = torch.stack([data[i : i + n] for i in at])\n"
    "y = torch.stack([data[i + 1 : i + 1 + n] for i in at])\n",
    "appends": "data = torch.randn(50, 3)\nat = torch.randint(50, (20,))\nrows = []\n"
    "for i in at:\n    rows.append(data[i])\nx = torch.stack(rows)\n",
    "items": "x = torch.linspace(0, 1, 33)\nx = [v.item() for v in torch.linspace(0, 1, 33)]\n",
    "numpy": "n = 30\nx = np.array([np.random.rand() for _ in range(n)])\n"
    "y = np.array([[np.random.randn() for _ in range(7)] for _ in range(n)])\n"
    "z = np.array([np.random.uniform(2, 5) for _ in range(n)])\n"
    "w = np.array([np.random.normal(1.5, 2) for _ in range(41)])\n",
    "numpy to torch": "x = torch.tensor([np.random.rand() for _ in range(44)])\n",
    "windows of one of two parts": """\
whole = torch.tensor(list(range(400)), dtype=torch.long)
cut = int(0.9 * len(whole))
first = whole[:cut]
second = whole[cut:].to("cpu")
length, size = 8, 16
def draw(part):
    data = first if part == "first" else second
    at = torch.randint(len(data) - length, (size,))
    x = torch.stack([data[i:i+length] for i in at])
    y = torch.stack([data[i+1:i+length+1] for i in at])
    x, y = x.to("cpu"), y.to("cpu")
    return x, y
x, y = draw("first")
v, w = draw("second")
""",
}


@pytest.mark.parametrize("name", SAME)
def test_an_edit_gives_the_same_bits_and_leaves_the_generators_alike(name: str) -> None:
    found = edited(SAME[name])
    assert found is not None
    assert found[1].keeps == EXACT
    assert " for " not in found[0]

    before, after = run(SAME[name]), run(found[0])

    assert before == after


OTHER = {
    "unit": ("x = torch.tensor([random.random() for _ in range(3000)])\n", 0.5),
    "range": ("x = torch.tensor([random.uniform(-2, 6) for _ in range(3000)])\n", 2.0),
    "normal": ("x = torch.tensor([random.gauss(3, 1) for _ in range(3000)])\n", 3.0),
    "integers": ("x = torch.tensor([random.randint(1, 5) for _ in range(3000)])\n", 3.0),
    "indices": ("x = torch.tensor([random.randrange(7) for _ in range(3000)])\n", 3.0),
    "rows": (
        "n = 60\nx = torch.tensor([[random.gauss(3, 1) for _ in range(50)] for _ in range(n)])\n",
        3.0,
    ),
}


@pytest.mark.parametrize("name", OTHER)
def test_an_edit_that_draws_from_another_generator_keeps_type_shape_and_mean(name: str) -> None:
    source, mean = OTHER[name]
    found = edited(source)
    assert found is not None
    assert found[1].keeps == OTHER_RANDOM
    assert " for " not in found[0]

    before, after = values(source)["x"], values(found[0])["x"]

    assert (before.dtype, before.shape) == (after.dtype, after.shape)
    spread = float(before.double().std()) / len(before.flatten()) ** 0.5
    assert abs(float(after.double().mean()) - mean) < 6 * spread
    assert float(after.double().std()) == pytest.approx(float(before.double().std()), rel=0.2)


@pytest.mark.parametrize(
    "source",
    [
        # What is indexed may be a list, or anything.
        "x = torch.stack([data[i] for i in torch.randint(50, (20,))])\n",
        "def f(data):\n    at = torch.randint(5, (9,))\n"
        "    return torch.stack([data[i] for i in at])\n",
        "data = [torch.randn(3)] * 9\nat = torch.randint(9, (4,))\n"
        "x = torch.stack([data[i] for i in at])\n",
        # It is bound twice.
        "data = torch.randn(9, 3)\ndata = list(data)\nat = torch.randint(9, (4,))\n"
        "x = torch.stack([data[i] for i in at])\n",
        # The indices are not known to be flat, or to be numbers.
        "data = torch.randn(9, 3)\nat = torch.randint(9, size)\n"
        "x = torch.stack([data[i] for i in at])\n",
        "data = torch.randn(9, 3)\nat = find()\nx = torch.stack([data[i] for i in at])\n",
        # A slice may be cut short.
        "data = torch.randn(90)\nat = torch.randint(len(data), (20,))\n"
        "x = torch.stack([data[i : i + 8] for i in at])\n",
        "data = torch.randn(90)\nat = torch.randint(len(data) - 5, (20,))\n"
        "x = torch.stack([data[i : i + 8] for i in at])\n",
        "data = torch.randn(90)\nat = torch.randint(-3, len(data) - 8, (20,))\n"
        "x = torch.stack([data[i : i + 8] for i in at])\n",
        # Something else is done, or left out.
        "data = torch.randn(9, 3)\nat = torch.randint(9, (4,))\n"
        "x = torch.stack([data[i] for i in at if i > 2])\n",
        "data = torch.randn(9, 3)\nat = torch.randint(9, (4,))\nrows = []\n"
        "for i in at:\n    rows.append(data[i])\nx = torch.stack(rows)\nprint(len(rows))\n",
        # A row depends on the round.
        "x = torch.tensor([[random.random() for _ in range(k)] for k in range(n)])\n",
        "x = torch.tensor([random.uniform(0, k) for k in range(n)])\n",
        "x = torch.tensor([random.random() for _ in range(n)], dtype=torch.int64)\n",
        "x = np.array([random.random() for _ in range(n)])\n",
        "x = torch.tensor([random.random() for _ in range(f(n))])\n",
        # One of two may be a list, and a slice of a list is one.
        "a, b = 1, 2\nc = torch.randn(9, 3)\nd = list(c)\ndata = c if a else d\n"
        "at = torch.randint(9, (4,))\nx = torch.stack([data[i] for i in at])\n",
        "c = list(torch.randn(9, 3))\ndata = c[:8]\nat = torch.randint(8, (4,))\n"
        "x = torch.stack([data[i] for i in at])\n",
        "data = data[1:]\nat = torch.randint(8, (4,))\nx = torch.stack([data[i] for i in at])\n",
        # The name is another one around the loop.
        "data = torch.randn(9, 3)\nat = torch.randint(8, (4,))\ndef f(data):\n    def g():\n"
        "        return torch.stack([data[i] for i in at])\n    return g()\nx = f(1)\n",
        "data = torch.randn(9, 3)\nat = torch.randint(8, (4,))\n"
        "f = lambda data: torch.stack([data[i] for i in at])\n",
        # Each round draws.
        "at = torch.randint(8, (4,))\nx = torch.stack([torch.randn(9)[i] for i in at])\n",
        # The indices were drawn for other data of this name.
        "data = torch.randn(99)\nat = torch.randint(len(data) - 8, (4,))\ndef f():\n"
        "    data = torch.randn(20)\n    return torch.stack([data[i:i+8] for i in at])\nx = f()\n",
    ],
)
def test_in_doubt_there_is_no_edit(source: str) -> None:
    assert edited(source) is None


def run(source: str) -> Any:
    """What a source leaves: its values and the generators, as comparable text and bytes."""
    found = values(source)
    tensors = {name: one for name, one in found.items() if len(name) == 1 and name in "xyzw"}
    return {name: as_bytes(one) for name, one in tensors.items()} | {
        "generators": found["generators"]
    }


def as_bytes(one: Any) -> Any:
    if hasattr(one, "numpy"):
        return str(one.dtype), tuple(one.shape), one.numpy().tobytes()
    return (str(one.dtype), one.shape, one.tobytes()) if hasattr(one, "tobytes") else one


def values(source: str) -> dict[str, Any]:
    import random

    torch = pytest.importorskip("torch")
    np = pytest.importorskip("numpy")
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    names: dict[str, Any] = {"random": random, "np": np, "torch": torch}
    exec(compile(source, "train.py", "exec"), names)  # the sources above
    state = (random.getstate(), torch.get_rng_state().tolist(), str(np.random.get_state()))
    return {**names, "generators": state}


def test_a_diff_names_the_file_and_has_lines_around_the_edit() -> None:
    lines = ["a = 1", "b = 2", "x = [é for é in y]", "c = 3", "d = 4", ""]
    edit = Edit(start=(3, 4), end=(3, 20), text="y.tolist()", keeps=EXACT)

    assert unified(lines, [edit], name="src/train.py") == (
        "--- a/src/train.py\n+++ b/src/train.py\n@@ -1,5 +1,5 @@\n"
        " a = 1\n b = 2\n-x = [é for é in y]\n+x = y.tolist()\n c = 3\n d = 4\n"
    )


# -- rows


SCRIPT = """\
import random, torch
from data import Rows
for step in range(100):
    x = torch.tensor([random.random() for _ in range(n)])
    loss = model(x)
    loss.backward()
    optimizer.step()
"""
DATA = """\
import torch
class Rows(torch.utils.data.Dataset):
    def __getitem__(self, index):
        row = torch.zeros(99)
        for k in range(len(row)):
            row[k] = self.values[index] * k
        return row
"""


def rows_of(
    *sites: tuple[str, str, int, int],
    data: str = DATA,
    script: str = SCRIPT,
    data_sets: tuple[str, ...] = (),
) -> tuple[LoopMark, ...]:
    trees = {"/nowhere/train.py": ast.parse(script)}
    own = OwnCode(
        trees=trees,
        lines={"/nowhere/train.py": script.split("\n")},
        scripts=["/nowhere/train.py"],
        read=lambda file: (
            (ast.parse(data), data.split("\n")) if file == "/nowhere/data.py" else None
        ),
        cwd="/nowhere",
        data_sets=data_sets,
    )
    return read_loop_rows(loop_rows(own, sites))


def test_a_row_has_the_loop_its_site_and_its_edit() -> None:
    mark, _ = rows_of(("other", "/nowhere/train.py", 7, 5), ("forward", "/nowhere/train.py", 5, 5))

    assert (mark.code, mark.file, mark.line) == ("random_per_element", "/nowhere/train.py", 4)
    assert (mark.what, mark.site) == ("other", ("/nowhere/train.py", 7, 5))
    assert mark.text == "x = torch.tensor([random.random() for _ in range(n)])"
    assert mark.keeps == OTHER_RANDOM
    assert "+    x = torch.rand(n)\n" in (mark.diff or "")
    assert (mark.diff or "").startswith("--- a/train.py\n+++ b/train.py\n")


WINDOWS = """\
import random, torch
data = torch.arange(900)
at = torch.randint(99, (5,))
def draw():
    x = torch.stack([data[i] for i in at])
    return x, torch.tensor([random.random() for _ in range(9)])
def stream():
    while True:
        yield torch.stack([data[i] for i in at])
batches = stream()
def train():
    for step in range(100):
        x = {make}
        loss = model(x)
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("make", "line"),
    [
        ("draw()", "+    x = data[at]"),
        ("next(stream())", None),
        ("torch.stack([data[i] for i in at])", None),
        ("torch.stack([data[i] for i in at]) + draw()[0]", "+    x = data[at]"),
    ],
)
def test_an_edit_that_a_lever_can_make_is_in_a_function_that_is_called_anew(
    make: str, line: str | None
) -> None:
    script = WINDOWS.format(make=make)
    found = rows_of(("other", "/nowhere/train.py", 16, 14), script=script)
    own = [one for one in found if one.what == "other"]

    if line is None:
        assert [one.live for one in own] in ([], [None])
        return
    digest, names, rest = str(own[0].live).split("\n", 2)
    assert digest == f"# sha256:{hashlib.sha256(script.encode()).hexdigest()}"
    assert names == "--- a/train.py"
    assert [one for one in rest.split("\n")[1:] if one.startswith("+")] == [line]


def test_a_function_in_which_a_step_has_its_markers_may_be_called_anew() -> None:
    script = WINDOWS.format(make="draw()")

    (mark,) = rows_of(("other", "/nowhere/train.py", 5, 6), script=script)[:1]

    assert mark.line == 5
    assert "+    x = data[at]" in str(mark.live)


def test_an_edit_at_the_level_of_a_module_is_none_that_a_lever_can_make() -> None:
    script = SCRIPT.replace("torch.tensor([random.random() for _ in range(n)])", "{}")
    script = "import torch\ndata = torch.arange(9)\nat = torch.randint(9, (5,))\n" + script
    script = script.format("torch.stack([data[i] for i in at])")

    mark, _ = rows_of(("other", "/nowhere/train.py", 10, 8), script=script)

    assert (mark.keeps, mark.live) == (EXACT, None)


def test_a_data_set_in_a_module_beside_the_script_is_read() -> None:
    (mark,) = rows_of()

    assert (mark.code, mark.file, mark.line) == ("element_writes", "/nowhere/data.py", 5)
    assert (mark.what, mark.site, mark.diff) == ("fetch", None, None)


def test_a_function_of_a_module_beside_the_script_is_read() -> None:
    data = "import random, torch\ndef make(n):\n    y = 0\n    x = torch.tensor([random.random() "
    data += "for _ in range(n)])\n    return x\n"
    script = SCRIPT.replace("torch.tensor([random.random() for _ in range(n)])", "make(n)")

    (mark,) = rows_of(("other", "/nowhere/train.py", 7, 5), data=data, script=script)

    assert (mark.code, mark.file, mark.line) == ("random_per_element", "/nowhere/data.py", 4)
    assert mark.site == ("/nowhere/train.py", 7, 5)
    assert "+++ b/data.py\n" in (mark.diff or "")
    assert "+    x = torch.rand(n)\n" in (mark.diff or "")


BATCHES = """
from .generator import make as make_batch, read
class Batches:
    def __getitem__(self, index):
        if self.source == "random":
            return make_batch(index)
        return read(index)
"""
GENERATOR = """
import random, torch
def make(n):
    x = torch.tensor([random.random() for _ in range(n)])
    return x
def read(index):
    return parse(open("x").read())
"""


def marks_of_package(words: dict[str, dict[str, object]], **changes: Any) -> tuple[LoopMark, ...]:
    """The loops of a script whose data set lies in a package and is made in another module."""
    texts = {"/nowhere/data/batches.py": BATCHES, "/nowhere/data/generator.py": GENERATOR}
    script = "from data.batches import Batches\n"
    own = OwnCode(
        trees={"/nowhere/train.py": ast.parse(script)},
        lines={"/nowhere/train.py": script.split("\n")},
        scripts=["/nowhere/train.py"],
        read=lambda file: (
            (ast.parse(texts[file]), texts[file].split("\n")) if file in texts else None
        ),
        cwd="/nowhere",
        data_sets=["Batches"],
        words=words,
    )
    return read_loop_rows(loop_rows(replace(own, **changes), []))


def test_a_generator_in_another_module_of_a_package_is_named() -> None:
    (mark,) = marks_of_package({"Batches": {"source": "random"}})

    assert (mark.code, mark.file, mark.line) == (
        "random_per_element",
        "/nowhere/data/generator.py",
        4,
    )
    assert (mark.what, mark.site) == ("fetch", None)
    assert "+++ b/data/generator.py\n" in (mark.diff or "")


@pytest.mark.parametrize("words", [{}, {"Batches": {"source": "file"}}, {"Other": {"source": "x"}}])
def test_a_branch_that_reads_files_may_have_taken_the_time(
    words: dict[str, dict[str, object]],
) -> None:
    assert marks_of_package(words) == ()


def test_the_file_of_a_data_set_is_read_where_no_script_imports_it() -> None:
    plain: dict[str, Any] = {
        "trees": {"/nowhere/train.py": ast.parse("pass\n")},
        "data_files": ["/nowhere/data/batches.py"],
    }
    (mark,) = marks_of_package({"Batches": {"source": "random"}}, **plain)

    assert mark.file == "/nowhere/data/generator.py"


def test_an_attribute_that_is_called_is_no_function_of_another_module() -> None:
    data = "class Rows:\n    def __getitem__(self, index):\n        return self.make(index)\n"
    made = "import random\ndef make(n):\n    return [random.random() for _ in range(n)]\n"
    texts = {"/nowhere/data.py": data, "/nowhere/other.py": made}
    script = "import data, other\n"
    own = OwnCode(
        trees={"/nowhere/train.py": ast.parse(script)},
        lines={"/nowhere/train.py": script.split("\n")},
        scripts=["/nowhere/train.py"],
        read=lambda file: (
            (ast.parse(texts[file]), texts[file].split("\n")) if file in texts else None
        ),
        cwd="/nowhere",
        data_sets=["Rows"],
    )

    assert loop_rows(own, []) == []


def test_of_several_data_sets_the_one_that_was_read_counts() -> None:
    two = (
        DATA + "class Files(Rows):\n    def __getitem__(self, index):\n        return open(index)\n"
    )

    assert rows_of(data=two) == ()
    (mark,) = rows_of(data=two, data_sets=("Rows",))
    assert (mark.code, mark.line) == ("element_writes", 5)


def test_a_data_set_that_decodes_is_not_read_as_a_loop() -> None:
    assert rows_of(data=DATA.replace("row = torch.zeros(99)", "row = decode(self.path)")) == ()


def test_rows_come_back_as_they_were_written() -> None:
    mark = LoopMark(
        code="element_reads",
        file="/a.py",
        line=3,
        end_line=4,
        text="for i in x:",
        what="other",
        site=("/a.py", 1, 9),
        num_others=2,
        diff="--- a\n",
        keeps=EXACT,
        live="# sha256:0\n--- a\n",
    )

    assert read_loop_rows([write_loop_row(mark)]) == (mark,)


@pytest.mark.parametrize(
    "row",
    [
        None,
        {},
        {"code": "x", "text": "", "what": "other", "at": ["a", 1], "num_others": 0},
        {"code": "x", "text": "", "what": "other", "at": ["a", 1, -1], "num_others": 0},
        {"code": "x", "text": "", "what": 3, "at": ["a", 1, 1], "num_others": 0},
        {"code": "x", "text": "", "what": "other", "at": ["a", 1, 1], "num_others": 1 << 40},
    ],
)
def test_damaged_rows_are_left_out(row: object) -> None:
    assert read_loop_rows([row]) == ()
    assert read_loop_rows(row) == ()
