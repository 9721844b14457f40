"""Edits of what a script asks torch for by name, of batches with padding, and of attention."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("libcst")

from end_to_end.harness import fork_bare
from patch_cases import LEVERS, SCRIPT, changed_lines, patched, sites_of
from steptime.levers import NAMES
from steptime.levers.base import Moment
from steptime.patch.edits import EDITS, NO_EDITS, VARIABLES
from steptime.patch.values import Handover
from steptime.tune.values.study_values import Applied

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def lever(name: str, **settings: Any) -> Applied:
    return Applied(name=name, settings=settings)


def reason(handover: Handover) -> str:
    (one,) = handover.by_hand
    assert handover.diff == b""
    assert one.lines
    return one.reason


def run_patched(folder: Path, handover: Handover) -> str:
    """What the script prints after `git apply`."""
    subprocess.run(["git", "apply", "-"], input=handover.diff, cwd=folder, check=True)
    (folder / "strict.py").write_text(STRICT)
    return printed(folder, "strict.py")


STRICT = """\
import runpy, warnings
warnings.simplefilter("error")
runpy.run_path("train.py", run_name="__main__")
"""


def printed(folder: Path, script: str = "train.py") -> str:
    """What a script in the folder prints."""
    done = fork_bare(folder, "python", script).finish()
    assert done.exit_code == 0, done.stderr.decode()
    return done.stdout.decode()


def test_what_has_an_edit_or_a_reason_is_a_lever_of_the_guest() -> None:
    variables = {name for name in NAMES if LEVERS[name].moment == Moment.ENVIRONMENT}

    assert {*EDITS, *NO_EDITS} == set(NAMES) - variables - set(VARIABLES)
    assert not set(EDITS) & set(NO_EDITS)


CALLS = [
    ("no_foreach", "opt = AdamW(p, lr=1)", "opt = AdamW(p, lr=1, foreach=False)"),
    ("no_compile", "net = torch.compile(Net(), mode='default')", "net = Net()"),
    (
        "dynamic_shapes",
        "net = torch.compile(net)",
        "net = torch.compile(net, dynamic=True)",
    ),
    (
        "dynamic_shapes",
        "net = torch.compile(net, dynamic=False)",
        "net = torch.compile(net, dynamic=True)",
    ),
]


@pytest.mark.parametrize(("name", "call", "becomes"), CALLS)
def test_a_call_by_name_is_changed(tmp_path: Path, name: str, call: str, becomes: str) -> None:
    found = patched(tmp_path, f"import torch\n{call}  # here\n", lever(name))

    assert changed_lines(found) == [f"-{call}  # here", f"+{becomes}  # here"]
    assert found.placed[0].places == ("train.py:2",)


@pytest.mark.parametrize("name", sorted({name for name, _, _ in CALLS} - {"no_foreach"}))
def test_where_no_such_call_is_found_the_lines_are_said(tmp_path: Path, name: str) -> None:
    source = "import torch\nopt.zero_grad(set_to_none=True)\nre.compile(x)\n"
    assert "in the files of the proof" in reason(patched(tmp_path, source, lever(name)))


def test_the_arguments_of_an_exchange_are_set(tmp_path: Path) -> None:
    found = patched(
        tmp_path,
        "model = DDP(model, device_ids=[0])\n",
        lever("ddp_options", gradient_as_bucket_view=True, bucket_cap_mb=4),
    )
    assert changed_lines(found)[1] == (
        "+model = DDP(model, device_ids=[0], gradient_as_bucket_view=True, bucket_cap_mb=4)"
    )


def test_a_lever_without_an_edit_says_why_and_its_lines(tmp_path: Path) -> None:
    found = patched(tmp_path, "import torch\n", lever("micro_batches", parts=2))
    assert "another one" in reason(found)


@pytest.mark.parametrize(
    ("wanted", "says", "lines"),
    [
        (lever("sparse_input"), "Which matrix stays the same", "rows = x.to_sparse_csr()"),
        (lever("other_optimizer", optimizer="muon"), "Another class", "torch.optim.Muon("),
        (lever("low_memory_states", states="8bit"), "Another class", "AdamW8bit("),
        (lever("gradient_transform", transform="znorm"), "`steptime.methods`", "gradients.attach("),
    ],
    ids=lambda one: one.name if isinstance(one, Applied) else "",
)
def test_a_lever_of_the_optimizer_or_the_input_has_a_reason_of_its_own(
    tmp_path: Path, wanted: Applied, says: str, lines: str
) -> None:
    found = patched(tmp_path, SCRIPT, wanted)
    assert says in reason(found)
    assert lines in found.by_hand[0].lines


TRAINING = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    loss = model(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
"""


@needs_git
def test_garbage_is_collected_at_updates_and_the_training_is_the_same(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    source = TRAINING + "import gc as g\nprint(g.isenabled(), g.get_freeze_count() > 0)\n"
    found = patched(tmp_path, source, lever("gc_control", every_updates=2))
    before = printed(tmp_path)
    loss, state = run_patched(tmp_path, found).splitlines()

    assert loss == before.splitlines()[0]
    assert state == "False True"


@needs_git
def test_matmuls_are_onednns_behind_the_imports(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    source = TRAINING.replace("nn.Linear(4, 2)", "nn.Linear(4, 200000)")
    found = patched(tmp_path, source, lever("matmul_library"))
    before = printed(tmp_path).splitlines()
    after = run_patched(tmp_path, found).splitlines()

    assert float(after[0]) == pytest.approx(float(before[0]), rel=1e-4)
    assert "onednn_matmuls = multiply_by_onednn(torch)" in str(found)


TEXTS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)
rows = [
    {"input_ids": torch.arange(1, 9) * (torch.arange(8) < n), "attention_mask": torch.arange(8) < n}
    for n in (2, 3, 5, 1)
]
model = nn.Embedding(9, 2)
loader = DataLoader(rows, batch_size=2)
for batch in loader:
    model(batch["input_ids"]).sum().backward()
    print(*batch["input_ids"].shape)
"""


@needs_git
@pytest.mark.parametrize(("multiple", "shapes"), [(1, "2 3\n2 5\n"), (4, "2 4\n2 8\n")])
def test_batches_are_cut_to_their_longest_row(tmp_path: Path, multiple: int, shapes: str) -> None:
    pytest.importorskip("torch")
    sites = sites_of(TEXTS, loader=("dataset:list",))
    found = patched(tmp_path, TEXTS, lever("trim_padding", multiple_of=multiple), sites=sites)

    inner = "TrimmedBatches(torch.utils.data.default_collate)"
    line = f"+loader = DataLoader(rows, batch_size=2, collate_fn={inner})"
    assert changed_lines(found)[-1] == line
    assert run_patched(tmp_path, found) == shapes


def test_a_collate_function_of_the_scripts_stays_inside(tmp_path: Path) -> None:
    source = "import torch\nl = DataLoader(d, collate_fn=pad)\n"
    sites = sites_of(source, loader=("dataset:Texts", "own_collate"))
    found = patched(tmp_path, source, lever("trim_padding", multiple_of=1), sites=sites)
    assert changed_lines(found)[-1] == "+l = DataLoader(d, collate_fn=TrimmedBatches(pad))"


ATTENTION = """\
import math

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.Linear(8, 24)
        self.attn_dropout = nn.Dropout(0.0)
        self.register_buffer("bias", torch.tril(torch.ones(5, 5)).view(1, 1, 5, 5))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (p.view(B, T, 2, 4).transpose(1, 2) for p in self.parts(x).split(8, dim=2))

        # scores
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        att = self.attn_dropout(att)
        y = att @ v  # (B, nh, T, hs)
        return y.transpose(1, 2).contiguous().view(B, T, C)


torch.manual_seed(0)
model = Attention()
x = torch.randn(3, 5, 8)
loss = model(x).square().sum()
loss.backward()
print(loss.item(), *(p.grad.norm().item() for p in model.parameters()))
"""


@needs_git
def test_attention_in_statements_becomes_one_call_with_the_same_numbers(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    found = patched(tmp_path, ATTENTION, lever("fused_attention"))
    before = printed(tmp_path)
    after = run_patched(tmp_path, found)

    assert changed_lines(found)[-8:] == [
        "+        y = torch.nn.functional.scaled_dot_product_attention(",
        "+            q,",
        "+            k,",
        "+            v,",
        "+            attn_mask=self.bias[:, :, :T, :T] != 0,",
        "+            dropout_p=self.attn_dropout.p if self.training else 0.0,",
        "+            scale=1.0 / math.sqrt(k.size(-1)),",
        "+        )  # (B, nh, T, hs)",
    ]
    assert "dim=2))\n\n        # scores\n        y = torch" in (tmp_path / "train.py").read_text()
    numbers = [float(word) for word in before.split()]
    assert [float(word) for word in after.split()] == pytest.approx(numbers, rel=1e-5)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("y = att @ v", "y = att @ v + att.sum()"),
        ("att = F.softmax(att, dim=-1)", "att = F.softmax(att, dim=-2)"),
        ('float("-inf")', "-3.0"),
        ("        att = self.attn_dropout(att)\n", "        print(x)\n"),
        ("return y.", "self.kept = att\n        return y."),
        ("k.transpose(-2, -1)", "k.transpose(-3, -1)"),
        ("self.attn_dropout(att)", "F.dropout(att)"),
    ],
)
def test_attention_that_is_written_in_another_way_is_left_alone(
    tmp_path: Path, old: str, new: str
) -> None:
    source = ATTENTION.replace(old, new)
    assert source != ATTENTION
    assert reason(patched(tmp_path, source, lever("fused_attention")))


def test_a_scale_by_division_and_no_mask(tmp_path: Path) -> None:
    source = (
        "import torch\ndef f(q, k, v):\n    s = torch.matmul(q, k.mT) / 8\n"
        "    w = s.softmax(-1)\n    return torch.matmul(w, v).transpose(1, 2)\n"
    )
    found = changed_lines(patched(tmp_path, source, lever("fused_attention")))
    assert found[-2:] == ["+        scale=1.0 / 8,", "+    ).transpose(1, 2)"]


@pytest.mark.parametrize(
    "steps",
    [
        ("att = ((q @ k.transpose(-2, -1)) * 0.5).softmax(dim=-1)",),
        ("att = F.softmax(q @ k.transpose(-2, -1) * 0.5, dim=-1)",),
        ("a = q @ k.mT * 0.5", "att = a.masked_fill(m == 0, float('-inf')).softmax(-1)"),
        ("a = q @ k.mT * 0.5", "att = self.drop(a.softmax(-1))"),
        ("att = self.drop(F.softmax((q @ k.mT * 0.5).masked_fill(~m, -math.inf), dim=-1))",),
    ],
)
def test_steps_of_attention_may_stand_in_one_another(tmp_path: Path, steps: tuple[str]) -> None:
    lines = "".join(f"    {line}\n" for line in (*steps, "return (att @ v).transpose(1, 2)"))
    source = (
        f"import math\nimport torch\nF = torch.nn.functional\ndef f(self, q, k, v, m):\n{lines}"
    )

    found = patched(tmp_path, source, lever("fused_attention"))

    assert not found.by_hand
    added = [line for line in changed_lines(found) if line.startswith("+")]
    assert added[0] == "+    return torch.nn.functional.scaled_dot_product_attention("
    assert added[-2:] == ["+        scale=0.5,", "+    ).transpose(1, 2)"]
    assert ("dropout_p=self.drop.p" in str(added)) is ("drop" in str(steps))
    assert ("attn_mask=" in str(added)) is ("mask" in str(steps))


def test_a_step_of_another_kind_around_attention_is_left_alone(tmp_path: Path) -> None:
    source = "import torch\ndef f(self, q, k, v):\n    w = self.norm((q @ k.mT).softmax(-1))\n"
    assert reason(patched(tmp_path, source + "    return w @ v\n", lever("fused_attention")))


# -- loops

BATCHES = """\
import torch
from torch import nn

torch.manual_seed(0)
data = torch.randn(90, 4)


def draw(num):
    at = torch.randint(len(data) - 8, (num,))
    x = torch.stack([data[i : i + 8] for i in at]).cpu()  # windows
    # and rows
    rows = []
    for i in at:
        rows.append(data[i])
    # of them
    y = torch.stack(rows)
    return x, y, torch.stack(
        [data[i] for i in at]
    )


model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    x, y, z = draw(5)
    loss = model(x).square().mean() + model(y + z).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
"""
LOOP_DIFF = """\
--- a/train.py
+++ b/train.py
@@ -10,10 +10,5 @@
-    x = torch.stack([data[i : i + 8] for i in at]).cpu()  # windows
+    x = data.unfold(0, 8, 1).movedim(-1, 1)[at].cpu()  # windows
     # and rows
-    rows = []
-    for i in at:
-        rows.append(data[i])
-    # of them
-    y = torch.stack(rows)
-    return x, y, torch.stack(
-        [data[i] for i in at]
-    )
+    y = data[at]
+    return x, y, data[at]
"""


@needs_git
def test_loops_become_calls_beside_the_edits_of_other_levers(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    levers = (lever("vectorized_loops", diff=LOOP_DIFF), lever("no_foreach"))
    found = patched(tmp_path, BATCHES, *levers)
    before = printed(tmp_path)

    assert not found.by_hand
    assert found.placed[0].places == ("train.py:10", "train.py:12")
    assert [line for line in changed_lines(found) if line.startswith("+")] == [
        "+    x = data.unfold(0, 8, 1).movedim(-1, 1)[at].cpu()  # windows",
        "+    y = data[at]",
        "+    return x, y, data[at]",
        "+optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)",
    ]
    assert run_patched(tmp_path, found) == before


def test_a_loop_that_is_not_there_any_more_is_said(tmp_path: Path) -> None:
    settings = {"diff": LOOP_DIFF}
    source = BATCHES.replace("rows.append(data[i])", "rows.append(data[i] * 2)")
    found = patched(tmp_path, source, lever("vectorized_loops", **settings))

    assert [one.reason for one in found.by_hand] == [
        "train.py:12 does not have the lines of the proof."
    ]
    other = {"diff": LOOP_DIFF.replace("train.py", "data.py")}
    assert "data.py" in reason(patched(tmp_path, BATCHES, lever("vectorized_loops", **other)))
    part = "@@ -9 +9 @@\n-    at = torch.randint(len(data) - 8, (num,))\n+    at = (\n"
    broken = {"diff": f"--- a/train.py\n+++ b/train.py\n{part}"}
    assert "lines of the proof" in reason(
        patched(tmp_path, BATCHES, lever("vectorized_loops", **broken))
    )


GELU = """\
import math

import torch
from torch import nn


class NewGELU(nn.Module):
    \"\"\"As in minGPT.\"\"\"

    def forward(self, x):
        # by tanh
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x.pow(3))))


class Exact(nn.Module):
    def forward(self, x):
        \"\"\"By erf.\"\"\"
        half = x / 2
        inner = (x * 2 ** -0.5).erf()
        return half * (
            1 + inner
        )


torch.manual_seed(0)
x = torch.randn(100, requires_grad=True)
y = NewGELU()(x) + Exact()(x)
y.sum().backward()
print(y.sum().item(), x.grad.square().sum().item())
"""


@needs_git
def test_gelu_that_is_written_out_becomes_one_call_with_the_same_numbers(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    found = patched(tmp_path, GELU, lever("fused_gelu", classes="NewGELU tanh, Exact none"))
    before = printed(tmp_path)
    after = run_patched(tmp_path, found)

    assert [line for line in changed_lines(found) if line.startswith("+")] == [
        '+        return torch.nn.functional.gelu(x, approximate="tanh")',
        "+        return torch.nn.functional.gelu(x)",
    ]
    assert "# by tanh" in (tmp_path / "train.py").read_text()
    numbers = [float(word) for word in before.split()]
    assert [float(word) for word in after.split()] == pytest.approx(numbers, rel=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        "        if x.is_cuda:\n            x = x + 1\n        return x",
        "        print(x)\n        print(x)\n        return x",
        "        return",
        "        pass",
        "        self.last = x",
    ],
)
def test_a_forward_with_more_than_assignments_and_a_result_is_left_alone(
    tmp_path: Path, text: str
) -> None:
    source = f"import torch\nclass F(torch.nn.Module):\n    def forward(self, x):\n{text}\n"
    assert "more than" in reason(patched(tmp_path, source, lever("fused_gelu", classes="F none")))


def test_a_forward_with_more_arguments_is_left_alone(tmp_path: Path) -> None:
    line = "        return 0.5 * x * (1 + torch.erf(x / 2**0.5))"
    for arguments in ("x, *rest", "x, **rest", "x, *, y", "x, y", ""):
        head = f"import torch\nclass F:\n    def forward(self, {arguments}):\n"
        assert "more than" in reason(
            patched(tmp_path, head + line, lever("fused_gelu", classes="F none"))
        )


def test_a_class_that_the_settings_do_not_name_stays(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    found = patched(tmp_path, GELU, lever("fused_gelu", classes="Exact none"))

    assert [line for line in changed_lines(found) if line.startswith("+")] == [
        "+        return torch.nn.functional.gelu(x)"
    ]


@pytest.mark.parametrize(
    ("classes", "why"),
    [
        ("", "Tune again"),
        ("NewGELUActivation tanh", "installed library"),
        ("Exact none, Exact tanh", "two forms"),
    ],
)
def test_a_class_that_is_not_one_of_the_files_is_said(
    tmp_path: Path, classes: str, why: str
) -> None:
    settings = {"classes": classes} if classes else {}
    found = patched(tmp_path, GELU, lever("fused_gelu", **settings))
    assert found.diff == b""
    assert all(why in one.reason for one in found.by_hand)
