"""`steptime quantize`: from a file with a network to a verdict and C sources."""

import json
from itertools import pairwise

import numpy as np
import pytest

torch = pytest.importorskip("torch")
for needed in ("onnxruntime", "safetensors", "sklearn", "mapie"):
    pytest.importorskip(needed)
from sklearn.datasets import load_digits  # noqa: E402

from steptime.cli.main import main  # noqa: E402

MODEL = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10))

class Both(nn.Module):  # two layers read the first one, so its channels are not equalized
    def __init__(self):
        super().__init__()
        self.layers = build()
        self.beside = nn.Conv2d(8, 16, 1, bias=False)

    def forward(self, x):
        x = self.layers[:4](x)
        return self.layers[5:](self.layers[4](x) + self.beside(x))

def number():
    return 7
def refuses():
    raise ValueError("not today")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A network that was trained on real digits, with its arrays."""
    folder = tmp_path_factory.mktemp("quantize")
    (folder / "model.py").write_text(MODEL)
    (folder / "broken.py").write_text("sizes = {}\nwidth = sizes['size']\n")
    (folder / "torn.py").write_text("def build(:\n")
    (folder / "ends.py").write_text("raise SystemExit(3)\n")
    space = {}
    exec(MODEL, space)
    model = space["build"]()
    digits = load_digits()
    x = (digits.images[:, None] / 16).astype(np.float32)
    y = digits.target
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        out = model(torch.from_numpy(x[:1000]))
        torch.nn.functional.cross_entropy(out, torch.from_numpy(y[:1000])).backward()
        optimizer.step()
    torch.save({"model": model.state_dict()}, folder / "ckpt.pt")
    torch.save(model, folder / "whole.pt")
    spiky = space["Both"]()  # one channel, which nothing reads, is hundreds of times as large
    spiky.layers.load_state_dict(model.state_dict())
    for each in (spiky.layers[1].weight, spiky.layers[1].bias):
        each.data[0] *= 300
    for layer in (spiky.layers[4], spiky.beside):
        layer.weight.data[:, 0] = 0
    spiky.beside.weight.data *= 0.01
    torch.save(spiky.state_dict(), folder / "spiky.pt")
    np.savez(folder / "cal.npz", x=x[:200])
    np.savez(folder / "test.npz", x=x[1000:], y=y[1000:])
    np.savez(folder / "few.npz", x=x[1000:1020], y=y[1000:1020])
    np.savez(folder / "bare.npz", z=x[:2])
    return folder


def give(folder, monkeypatch, words):
    monkeypatch.chdir(folder)
    return main(["quantize", *words.split()])


def test_a_trained_network_becomes_bytes_and_passes(folder, monkeypatch, capsys):
    words = "model.py:build --weights ckpt.pt --calibrate cal.npz --evaluate test.npz"
    assert give(folder, monkeypatch, f"{words} -o out --curve --json doc.json") == 0

    told = capsys.readouterr().out
    assert told.startswith("outcome    PASS: int8 is as good as fp32")
    for label in ("integer", "size", "cost", "speed", "devices", "keep"):
        assert f"\n{label}" in told
    data = json.loads((folder / "doc.json").read_text())["data"]
    assert data["outcome"] == data["verdict"]["outcome"] == "PASS"
    assert data["float_bytes"] >= 3.5 * data["integer_bytes"]
    assert data["num_same_in_c"] in (None, 20)
    assert all((folder / "out" / name).is_file() for name in data["files"])
    assert "PASS" in (folder / "out" / "report.html").read_text("utf-8")
    points = data["curve"]
    sizes = [one["num_bytes"] for one in points]
    assert len(sizes) >= 3
    assert sizes == sorted(sizes, reverse=True)
    assert data["float_bytes"] / sizes[-1] > 6
    for a, b in pairwise(points):  # the larger one is better in something
        assert a["metric"] > b["metric"] or a["predicted_ms"] < b["predicted_ms"]
    assert -1 <= data["rank_correlation"] <= 1
    page = (folder / "out" / "report.html").read_text("utf-8")
    assert "Size and metric" in page
    assert "Latency and metric" in page
    assert data["passing"] is None
    for name, num in (("inputs.bin", 20 * 64), ("outputs.bin", 20 * 10)):
        assert (folder / "out" / name).stat().st_size == num
    assert abs(data["verdict"]["gain"]["estimate"]) < 0.01


def test_a_layer_with_outliers_fails_in_bytes_and_passes_where_it_is_kept_wider(
    folder, monkeypatch, capsys
):
    words = "model.py:Both --weights spiky.pt --calibrate cal.npz --evaluate test.npz"
    assert give(folder, monkeypatch, f"{words} -o spiky --curve --json spiky.json") == 5
    told = " ".join(capsys.readouterr().out.split())
    assert "to pass keep `layers.0` wider: --keep layers.0 (accuracy" in told
    point = json.loads((folder / "spiky.json").read_text())["data"]["passing"]
    assert point["in_16_bits"] == ["layers.0"]

    assert give(folder, monkeypatch, f"{words} -o kept --keep layers.0 --json kept.json") == 0
    data = json.loads((folder / "kept.json").read_text())["data"]
    assert data["verdict"]["candidate"] == point["metric"]
    assert data["integer_bytes"] == point["num_bytes"]
    assert data["num_same_in_c"] in (None, 20)
    bits = {one["name"]: one["num_bits"] for one in data["layers"]}
    assert {name for name, num in bits.items() if num == 16} == {"layers.0", "layers.3"}
    assert (folder / "kept" / "inputs.bin").stat().st_size == 2 * 20 * 64


def test_no_c_is_written_of_layers_in_floats(folder, monkeypatch, capsys):
    words = "model.py:Both --weights spiky.pt --calibrate cal.npz --evaluate test.npz"
    assert give(folder, monkeypatch, f"{words} -o floats --keep *.0=fp32 --keep *.4=fp32") == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "in floats, which C has not, so no C is written: `layers.0`, `layers.4`" in told
    assert not (folder / "floats" / "network.c").exists()


def test_a_program_gives_a_module_and_arrays(folder):
    import steptime

    space = {}
    exec(MODEL, space)
    rows = dict(np.load(folder / "test.npz"))
    arrays = {"calibrate": rows["x"][:50], "evaluate": (rows["x"][:100], rows["y"][:100])}
    model = space["build"]().train()
    model[1].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = steptime.quantize_model(model, **arrays, margin=0.5)
    assert [one.training for one in model] == [at != 1 for at in range(8)]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert found.outcome.value == "PASS"
    assert found.files == ()
    with pytest.raises(steptime.SteptimeError, match="observer is `best`"):
        steptime.quantize_model(space["build"](), **arrays, observer="best")


def test_text_is_looked_up_and_a_word_without_a_row_is_named(folder, monkeypatch, capsys):
    (folder / "text.py").write_text(
        "from torch import nn\n"
        "class Text(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.words, self.last = nn.Embedding(40, 8), nn.Linear(8, 2)\n"
        "    def forward(self, x):\n"
        "        return self.last(self.words(x).mean(1))\n"
    )
    words = np.random.default_rng(0).integers(0, 40, (300, 6))
    np.savez(folder / "words.npz", x=words, y=(words < 20).sum(axis=1) > 3)
    np.savez(folder / "more.npz", x=words + 1)
    given = "text.py:Text --evaluate words.npz --margin 0.5 -o text"

    assert give(folder, monkeypatch, f"{given} --calibrate words.npz") == 0
    assert "all 3 operators" in capsys.readouterr().out
    assert give(folder, monkeypatch, f"{given} --calibrate more.npz") == 1
    assert (
        "from 1 to 40; the network looks them up in a table of 40 rows" in capsys.readouterr().err
    )


def test_a_collapse_is_caught_and_few_rows_decide_nothing(folder, monkeypatch, capsys):
    words = "model.py:build --weights ckpt.pt --calibrate cal.npz"
    assert give(folder, monkeypatch, f"{words} --evaluate few.npz -o few") == 4

    np.savez(folder / "dark.npz", x=np.load(folder / "cal.npz")["x"] * 0.02)
    words = "model.py:build --weights ckpt.pt --calibrate dark.npz"
    assert give(folder, monkeypatch, f"{words} --evaluate test.npz -o dark") == 5
    assert "the worst:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("nothing.py:build", "there is no file `nothing.py`"),
        ("model.py", "names no function"),
        ("model.py:absent", "has no function `absent`"),
        ("broken.py:build", "`broken.py`, line 2, raised KeyError: 'size'"),
        ("torn.py:build", "`torn.py`, line 1, raised SyntaxError"),
        ("ends.py:build", "`ends.py`, line 1, raised SystemExit: 3"),
        ("model.py:refuses", "`model.py`, line 24, raised ValueError: not today"),
        ("model.py:number", "returns a int, not a torch.nn.Module"),
        ("model.py:build --weights no.pt", "there is no file `no.pt`"),
        ("model.py:build --weights whole.pt", "cannot be read as weights alone"),
        ("model.py:build --weights cal.npz", "cannot be read as weights alone"),
        ("model.py:build --calibrate bare.npz", "has no array `x`; it has z"),
        ("model.py:build --evaluate cal.npz", "has no array `y`"),
        ("model.py:build --metric squared_error", "--margin is missing"),
        ("model.py:build --keep conv", "no layer `conv`. These can be kept: `0`, `4`, `7`."),
        ("model.py:build --keep 3", "`3` is no convolution and no linear layer (pooling)"),
        ("model.py:build --keep 4=int4", "`4=int4` names no form"),
    ],
)
def test_wrong_usage_is_one_clear_message(folder, monkeypatch, capsys, words, answer):
    given = words if "--calibrate" in words else f"{words} --calibrate cal.npz"
    given = given if "--evaluate" in words else f"{given} --evaluate test.npz"
    assert give(folder, monkeypatch, given) in (1, 2)
    told = capsys.readouterr().err
    assert answer in " ".join(told.split())
    assert "Traceback" not in told
