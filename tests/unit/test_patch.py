"""The edit of a recipe: what stands in the diff, and what is left alone with a reason."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("libcst")

from patch_cases import (
    BF16,
    CACHE,
    CHANNELS_LAST,
    COMPILE,
    FUSED,
    LEVERS,
    MATMUL,
    ONE_THREAD,
    PASSIVE,
    PRELOADED,
    SCRIPT,
    WHOLE,
    WORKERS,
    changed_lines,
    patch_of,
    patched,
    recipe_of,
    sites_of,
)
from steptime.patch.values import Handover
from steptime.tune.values.study_values import Applied

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def apply(folder: Path, handover: Handover) -> bytes:
    """The script after `git apply`, outside any repository."""
    done = subprocess.run(
        ["git", "apply", "-"], input=handover.diff, cwd=folder, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return (folder / "train.py").read_bytes()


def reason(handover: Handover) -> str:
    (one,) = handover.by_hand
    assert handover.diff == b""
    assert one.lines
    return one.reason


# -- each edit


@pytest.mark.parametrize(
    ("call", "becomes"),
    [
        ("AdamW(params, lr=0.1)", "AdamW(params, lr=0.1, fused=True)"),
        ("AdamW(params)", "AdamW(params, fused=True)"),
        ("AdamW(params, 0.1, (0.9, 0.99))", "AdamW(params, 0.1, (0.9, 0.99), fused=True)"),
        ("AdamW(params, lr=0.1,)", "AdamW(params, lr=0.1, fused=True,)"),
        ("AdamW(params, fused=False)", "AdamW(params, fused=True)"),
        ("AdamW(params, foreach=True, lr=0.1)", "AdamW(params, fused=True, lr=0.1)"),
        ("AdamW(params, **given)", 'AdamW(params, **{**given, "fused": True})'),
        ("AdamW(*given)", "AdamW(*given, fused=True)"),
    ],
)
def test_an_optimizer_is_fused_however_it_is_made(tmp_path: Path, call: str, becomes: str) -> None:
    found = patched(tmp_path, f"opt = {call}\n", FUSED)
    assert changed_lines(found) == [f"-opt = {call}", f"+opt = {becomes}"]


def test_arguments_on_lines_of_their_own_get_a_line(tmp_path: Path) -> None:
    source = "opt = AdamW(\n    params,  # all\n    lr=0.1,  # the rate\n)\n"
    assert changed_lines(patched(tmp_path, source, FUSED)) == ["+    fused=True,"]

    source = "opt = AdamW(params,\n            lr=0.1)\n"
    found = changed_lines(patched(tmp_path, source, FUSED))
    assert found == ["-            lr=0.1)", "+            lr=0.1,", "+            fused=True)"]


def test_each_of_two_optimizers_is_fused(tmp_path: Path) -> None:
    found = patched(tmp_path, "a = Adam(p)\nb = Adam(q)\n", FUSED)
    assert found.placed[0].places == ("train.py:1", "train.py:2")
    assert "+b = Adam(q, fused=True)" in changed_lines(found)


def test_only_the_branch_of_the_proof_is_changed(tmp_path: Path) -> None:
    source = "if a:\n    opt = SGD(p)\nelse:\n    opt = Adam(p)\n"
    sites = sites_of(source)[1:]
    assert changed_lines(patched(tmp_path, source, FUSED, sites=sites)) == [
        "-    opt = Adam(p)",
        "+    opt = Adam(p, fused=True)",
    ]


def test_loaders_get_their_arguments_by_name_or_by_position(tmp_path: Path) -> None:
    found = patched(tmp_path, "l = DataLoader(d, 2, True, None, None, 0)\n", WORKERS)
    new = "+l = DataLoader(d, 2, True, None, None, 2, persistent_workers=True, prefetch_factor=2)"
    assert changed_lines(found)[1] == new
    assert "second epoch" in found.placed[0].notes[0]


def test_no_workers_take_their_settings_with_them(tmp_path: Path) -> None:
    off = Applied(name="dataloader", settings={"num_workers": 0})
    source = "l = DL(d, num_workers=4, shuffle=True, persistent_workers=True)\n"
    assert changed_lines(patched(tmp_path, source, off))[1] == (
        "+l = DL(d, num_workers=0, shuffle=True)"
    )


def test_whole_batches_stand_around_the_data_set(tmp_path: Path) -> None:
    found = patched(tmp_path, "import torch\nl = DataLoader(dataset=d, shuffle=True)\n", WHOLE)
    lines = changed_lines(found)
    assert "+class WholeBatches(torch.utils.data.Dataset):" in lines
    assert lines[-1] == (
        "+l = DataLoader(dataset=WholeBatches(d), shuffle=True, collate_fn=as_it_is)"
    )


def test_a_cache_stands_around_the_data_set(tmp_path: Path) -> None:
    source = "import torch as th\nl = DataLoader(Files('x'))\n"
    sites = sites_of(source, loader=("dataset:Files",))
    lines = changed_lines(patched(tmp_path, source, CACHE, sites=sites))
    assert "+class CachedSamples(th.utils.data.Dataset):" in lines
    assert lines[-1] == "+l = DataLoader(CachedSamples(Files('x')))"


def test_samples_are_made_once_and_workers_go(tmp_path: Path) -> None:
    source = "import torch\nl = DataLoader(Words(), num_workers=4, prefetch_factor=4)\n"
    sites = sites_of(source, loader=("dataset:Words", "workers:4"))
    lines = changed_lines(patched(tmp_path, source, PRELOADED, sites=sites))
    assert "+class PreloadedSamples(torch.utils.data.Dataset):" in lines
    assert lines[-1] == (
        "+l = DataLoader(PreloadedSamples(Words()), num_workers=0, collate_fn=as_it_is)"
    )


def test_whole_batches_of_a_data_set_that_is_no_tensor_are_made_once_and_it_is_said(
    tmp_path: Path,
) -> None:
    source = "import torch\nl = DataLoader(digits)\nm = DataLoader(others)\n"
    sites = sites_of(source, loader=("dataset:MNIST", "in_memory"))
    found = patched(tmp_path, source, WHOLE, sites=sites)
    assert "+l = DataLoader(PreloadedSamples(digits), collate_fn=as_it_is)" in changed_lines(found)
    (placed,) = found.placed
    assert "before the first step" in " ".join(placed.notes)


def test_samples_that_whole_batches_are_taken_of_are_not_made_once_by_another_lever_too(
    tmp_path: Path,
) -> None:
    source = "import torch\nl = DataLoader(digits)\n"
    sites = sites_of(source, loader=("dataset:MNIST", "in_memory"))
    assert "No call was seen" in reason(patched(tmp_path, source, PRELOADED, sites=sites))


def test_a_data_set_that_the_lever_left_alone_is_left_to_the_user(tmp_path: Path) -> None:
    source = "import torch\nl = DataLoader(digits)\n"
    sites = sites_of(source, loader=("dataset:MNIST",))
    assert "No call was seen" in reason(patched(tmp_path, source, WHOLE, sites=sites))


def test_a_loader_with_its_own_collate_is_neither_cached_nor_preloaded(tmp_path: Path) -> None:
    sites = sites_of("l = DataLoader(d)\n", loader=("dataset:Files", "own_collate"))
    found = patched(tmp_path, "l = DataLoader(d)\n", CACHE, sites=sites)
    assert "own collate" in reason(found)
    found = patched(tmp_path, "l = DataLoader(d)\n", PRELOADED, sites=sites)
    assert "torch's own collate" in reason(found)


def test_a_call_moves_into_autocast_with_its_comments(tmp_path: Path) -> None:
    source = "import torch\n\nfor x in xs:\n    # here\n    out = model(x)  # there\n    use(out)\n"
    assert changed_lines(patched(tmp_path, source, BF16)) == [
        "-    out = model(x)  # there",
        '+    with torch.autocast("cpu", dtype=torch.bfloat16):',
        "+        out = model(x)  # there",
        "+    out = out.float()",
    ]


def test_a_call_inside_the_loss_is_taken_out(tmp_path: Path) -> None:
    source = "import torch\nloss = criterion(model(x), y)\n"
    assert changed_lines(patched(tmp_path, source, BF16)) == [
        "-loss = criterion(model(x), y)",
        '+with torch.autocast("cpu", dtype=torch.bfloat16):',
        "+    outputs = model(x)",
        "+loss = criterion(outputs.float(), y)",
    ]


def test_a_returned_call_is_taken_out(tmp_path: Path) -> None:
    source = "import torch\ndef f(model, x):\n    return model(x)\nf(net, x)\n"
    assert changed_lines(patched(tmp_path, source, BF16))[-1] == "+    return outputs.float()"


@pytest.mark.parametrize(
    ("line", "outputs", "last"),
    [
        ("a, b = model(x, y)", "float,float", ["+a, b = a.float(), b.float()"]),
        ("_, loss = model(x, y)", "float,float", ["+loss = loss.float()"]),
        ("out = model(**batch)", "mapping", ["+    out = model(**batch)"]),
        ("self.out = model(x)", "float", ["+self.out = self.out.float()"]),
        (
            "out, state = model(x, state)",
            "float,floats",
            ["+out, state = out.float(), tuple(part.float() for part in state)"],
        ),
    ],
)
def test_outputs_of_several_parts(tmp_path: Path, line: str, outputs: str, last: list[str]) -> None:
    source = f"import torch\n{line}\n"
    sites = sites_of(source, model_call=(f"output:{outputs}",))
    assert changed_lines(patched(tmp_path, source, BF16, sites=sites))[-1:] == last


@pytest.mark.parametrize(
    ("line", "outputs", "says"),
    [
        ("out = model(x)", "nested", "outputs at train.py:2 are nested"),
        ("out = model(x)[0]", "float,float", "not a single tensor"),
        ("out = [model(x) for x in xs]", "float", "inside another expression"),
        ("out = model(x) if y else 0", "float", "inside another expression"),
        ("if model(x): pass", "float", "no statement of its own"),
        ("for x in xs: out = model(x)", "float", "no statement of its own"),
        ("out = model(x); use(out)", "float", "several statements on one line"),
        ("loss = f(draw(), model(x))", "float", "computes draw() before it calls the model"),
    ],
)
def test_a_call_that_cannot_move_is_left_alone(
    tmp_path: Path, line: str, outputs: str, says: str
) -> None:
    source = f"import torch\n{line}\n"
    sites = sites_of(source, model_call=(f"output:{outputs}",))
    assert says in reason(patched(tmp_path, source, BF16, sites=sites))


def test_half_precision_needs_a_scaled_loss(tmp_path: Path) -> None:
    fp16 = Applied(name="autocast", settings={"dtype": "fp16"})
    assert "fp16 needs its loss scaled" in reason(patched(tmp_path, SCRIPT, fp16))


def test_channels_last_turns_the_model_once_and_each_image(tmp_path: Path) -> None:
    assert changed_lines(patched(tmp_path, SCRIPT, CHANNELS_LAST)) == [
        "+model.to(memory_format=torch.channels_last)",
        "-        out = model(x)",
        "+        out = model(x.to(memory_format=torch.channels_last))",
    ]


def test_an_image_that_is_computed_gets_parentheses(tmp_path: Path) -> None:
    source = "import torch\nmodel = Net()\nout = model(x + 1)\n"
    last = changed_lines(patched(tmp_path, source, CHANNELS_LAST))[-1]
    assert last == "+out = model((x + 1).to(memory_format=torch.channels_last))"


def test_precision_is_set_behind_the_imports(tmp_path: Path) -> None:
    source = '"""Doc."""\n\nfrom torch import nn\nimport torch as th\n\nx = 1\n'
    found = patched(tmp_path, source, MATMUL)
    line = 'import torch as th\n\nth.set_float32_matmul_precision("medium")\n\nx = 1\n'
    assert found.files["train.py"].decode().endswith(line)


def test_torch_is_imported_where_it_is_not(tmp_path: Path) -> None:
    source = "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\nmain()\n"
    assert changed_lines(patched(tmp_path, source, MATMUL)) == [
        "+import torch",
        "+",
        '+torch.set_float32_matmul_precision("medium")',
    ]


# -- where a model gets its name


@pytest.mark.parametrize(
    ("source", "behind"),
    [
        ("model = Net()\nfor x in xs:\n    model(x)\n", "model = Net()"),
        ("model = Net()\nmodel = DDP(model)\nmodel(x)\n", "model = DDP(model)"),
        ("model = Net()\nif many:\n    model = DDP(model)\nmodel(x)\n", "    model = DDP(model)"),
        ("for f in fs:\n    model = Net()\n    model(x)\n", "    model = Net()"),
        ("model, other = make()\nmodel(x)\n", "model, other = make()"),
        ("model: Net = Net()\nmodel(x)\n", "model: Net = Net()"),
        ("model = Net()\ndef run():\n    model(x)\nrun()\n", "model = Net()"),
        ("def run(model):\n    model(x)\nnet = Net()\nrun(net)\n", "net = Net()"),
        ("def run(n, model):\n    model(x)\nnet = Net()\nrun(model=net, n=1)\n", "net = Net()"),
        (
            "def run(model):\n    model(x)\ndef main():\n    net = Net()\n    run(net)\nmain()\n",
            "    net = Net()",
        ),
        (
            "class T:\n    def __init__(self):\n        self.model = Net()\n"
            "    def fit(self):\n        self.model(x)\nT().fit()\n",
            "        self.model = Net()",
        ),
        (
            "def run(model):\n    model(x)\nif __name__ == '__main__':\n    if go:\n"
            "        net = Net()\n        run(net)\n",
            "        net = Net()",
        ),
    ],
)
def test_a_model_is_compiled_behind_its_last_name(tmp_path: Path, source: str, behind: str) -> None:
    found = patched(tmp_path, source, COMPILE)
    lines = found.files["train.py"].decode().splitlines()
    (number,) = [i for i, line in enumerate(lines) if ".compile(" in line]
    assert lines[number - 1] == behind
    assert lines[number].endswith('.compile(options={"fallback_random": True})')


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("def run(model):\n    model(x)\nrun(Net())\n", "no name of its own"),
        ("def run(model):\n    model(x)\nrun(*parts)\n", "what run gets as `model`"),
        ("from nets import model\nmodel(x)\n", "where in train.py `model` gets its model"),
    ],
)
def test_a_model_without_a_clear_name_is_left_alone(tmp_path: Path, source: str, says: str) -> None:
    assert says in reason(patched(tmp_path, source, COMPILE))


def test_two_calls_of_one_model_compile_it_once(tmp_path: Path) -> None:
    source = "netD = Net()\nfor x in xs:\n    a = netD(x)\n    b = netD(y)\n"
    assert len(changed_lines(patched(tmp_path, source, COMPILE))) == 1


# -- what has no place


def test_a_file_that_was_changed_since_the_proof_is_untouched(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT + "# more\n")
    found = patch_of(tmp_path, recipe_of(SCRIPT, FUSED))
    assert reason(found) == "train.py was changed since the proof."
    assert (tmp_path / "train.py").read_text() == SCRIPT + "# more\n"


def test_a_file_that_is_gone_or_elsewhere(tmp_path: Path) -> None:
    assert "train.py is not there" in reason(patch_of(tmp_path, recipe_of(SCRIPT, FUSED)))

    recipe = recipe_of(SCRIPT, FUSED, file="/elsewhere/train.py")
    assert "outside the folder" in reason(patch_of(tmp_path, recipe))


def test_a_read_only_file_is_untouched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    assert reason(patched(tmp_path, SCRIPT, FUSED)) == "train.py is read-only."


@pytest.mark.parametrize(
    ("trait", "says"),
    [
        ("library", "inside an installed package"),
        ("generated", "made at run time"),
    ],
)
def test_source_that_is_no_file_of_the_users(tmp_path: Path, trait: str, says: str) -> None:
    sites = sites_of(SCRIPT, optimizer=(trait,))
    assert says in reason(patched(tmp_path, SCRIPT, FUSED, sites=sites))


def test_a_recipe_of_an_older_version_knows_no_places(tmp_path: Path) -> None:
    recipe = replace(recipe_of(SCRIPT, FUSED), sites=None)
    assert "does not say where" in reason(patch_of(tmp_path, recipe))


def test_a_call_that_also_makes_an_unproven_loader(tmp_path: Path) -> None:
    sites = sites_of(SCRIPT, loader=("dataset:X", "shared"))
    assert "for which nothing was proven" in reason(patched(tmp_path, SCRIPT, WORKERS, sites=sites))


def test_two_places_where_one_was_proven(tmp_path: Path) -> None:
    source = "a, b = Adam(p), Adam(q)\n"
    sites = sites_of(source, has_columns=False)[:1]
    says = reason(patched(tmp_path, source, FUSED, sites=sites))
    assert says == "train.py:1 has 2 calls, and one was proven."


def test_a_line_without_columns_is_enough_where_one_call_has_the_name(tmp_path: Path) -> None:
    sites = sites_of(SCRIPT, has_columns=False)
    found = patched(tmp_path, SCRIPT, FUSED, sites=sites)
    assert found.placed[0].places == ("train.py:8",)


def test_a_setting_that_no_edit_knows_is_said(tmp_path: Path) -> None:
    newer = Applied(name="compile", settings={"mode": "default", "region": "blocks"})
    assert "no edit yet for its setting `region`" in reason(patched(tmp_path, SCRIPT, newer))


def test_source_that_is_no_python_is_untouched(tmp_path: Path) -> None:
    sites = sites_of(SCRIPT)
    found = patched(tmp_path, b"opt = = 1\n", FUSED, sites=sites)
    assert "cannot be read as Python" in reason(found)


# -- the launch line


def test_variables_become_a_launch_line(tmp_path: Path) -> None:
    found = patched(tmp_path, SCRIPT, ONE_THREAD, PASSIVE)
    assert found.diff == b""
    assert found.launch_line == (
        "OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=0 KMP_BLOCKTIME=0 python train.py"
    )


def test_a_library_that_is_missing_is_said(tmp_path: Path) -> None:
    tcmalloc = Applied(name="allocator", settings={"library": "tcmalloc"})
    assert reason(patched(tmp_path, SCRIPT, tcmalloc)) == "tcmalloc is not installed here."

    (tmp_path / "train.py").write_text(SCRIPT)
    found = patch_of(tmp_path, recipe_of(SCRIPT, tcmalloc), {"tcmalloc": "/lib/my tc.so"})
    assert str(found.launch_line).startswith("LD_PRELOAD='/lib/my tc.so' ")


# -- bytes


ALL = (BF16, CHANNELS_LAST, COMPILE, FUSED, WORKERS, WHOLE, MATMUL, ONE_THREAD)
WRITTEN = {
    "plain": SCRIPT.encode(),
    "crlf": SCRIPT.replace("\n", "\r\n").encode(),
    "tabs": SCRIPT.replace("    ", "\t").encode(),
    "two spaces": SCRIPT.replace("    ", "  ").encode(),
    "no final newline": SCRIPT.rstrip("\n").encode(),
    "final line changes": (SCRIPT.partition("for epoch")[0] + "out = model(data[0])").encode(),
    "latin-1": b"# -*- coding: latin-1 -*-\n# \xe4\xf6\n" + SCRIPT.encode(),
    "utf-8": ("# für – 日本\n" + SCRIPT.replace("out = model(x)", "ü = 'ß'; out = model(x)")
              .replace("ü = 'ß'; ", "")).encode(),
    "bom": b"\xef\xbb\xbf" + SCRIPT.encode(),
}  # fmt: skip


@needs_git
@pytest.mark.parametrize("name", WRITTEN)
def test_git_applies_the_diff_to_any_file(tmp_path: Path, name: str) -> None:
    found = patched(tmp_path, WRITTEN[name], *ALL)
    if name == "bom" and not found.files:
        assert all("byte for byte" in one.reason for one in found.by_hand)
        return
    assert not found.by_hand, found.by_hand
    after = apply(tmp_path, found)
    assert after == found.files["train.py"]
    compile(after, "train.py", "exec")
    if name == "crlf":
        assert after.count(b"\n") == after.count(b"\r\n")
    if name == "tabs":
        assert b"    " not in after


def test_a_file_that_would_lose_a_byte_is_untouched(tmp_path: Path) -> None:
    source = SCRIPT.replace("model = nn", "\x0cmodel = nn")
    assert "byte for byte" in reason(patched(tmp_path, source, FUSED))


def test_columns_count_bytes(tmp_path: Path) -> None:
    source = "x = ('日本', Adam(p))\n".encode()
    assert (
        changed_lines(patched(tmp_path, source, FUSED))[1] == "+x = ('日本', Adam(p, fused=True))"
    )


@needs_git
def test_the_names_of_the_diff_begin_in_the_folder_of_the_command(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    inner = tmp_path / "inner folder"
    inner.mkdir()
    assert b"fused=True" in apply(inner, patched(inner, SCRIPT, FUSED))


@needs_git
@pytest.mark.parametrize("name", ["my train.py", 'q"uo\\te.py', "träin.py", "sub/net.py"])
def test_odd_names_of_files(tmp_path: Path, name: str) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / name).write_text(SCRIPT)
    found = patch_of(tmp_path, recipe_of(SCRIPT, FUSED, file=name))
    done = subprocess.run(["git", "apply", "-"], input=found.diff, cwd=tmp_path, check=False)
    assert done.returncode == 0
    assert "fused=True" in (tmp_path / name).read_text()


def test_levers_of_one_recipe_meet_in_one_call(tmp_path: Path) -> None:
    found = patched(tmp_path, SCRIPT, *ALL)
    lines = changed_lines(found)
    assert "+            out = model(x.to(memory_format=torch.channels_last))" in lines
    assert {one.name for one in found.placed} == {one.name for one in ALL}
    assert {one.name for one in ALL} <= set(LEVERS)


def test_no_file_is_written(tmp_path: Path) -> None:
    patched(tmp_path, SCRIPT, *ALL)
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
    assert (tmp_path / "train.py").read_text() == SCRIPT
