"""A network of bytes: near the one of floats, and bit for bit the same in C."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

from steptime.errors import DataError, UsageError  # noqa: E402
from steptime.quantize.c.arena import plan_arena  # noqa: E402
from steptime.quantize.c.write_c import c_sources  # noqa: E402
from steptime.quantize.capture import capture  # noqa: E402
from steptime.quantize.integer.integer_network import build  # noqa: E402
from steptime.quantize.observers import Observer, observe  # noqa: E402
from steptime.quantize.scheme import fraction_of, scaled  # noqa: E402
from steptime.quantize.wider_values import kept_layers, widened  # noqa: E402
from steptime.quantize.write_onnx import onnx_model  # noqa: E402
from unit.onnx_sessions import exact_session_of  # noqa: E402

FLAGS = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-fPIC"]
WHOLE_REGISTERS = "-fno-tree-vectorize"  # else whole numbers, too, go through the wide registers


class Residual(nn.Module):
    """Convolutions in groups, dilated, with a sum, a concatenation and a gate."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6()
        )
        self.deep = nn.Sequential(
            nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.SiLU()
        )
        self.wide = nn.Conv2d(8, 4, 3, padding=2, dilation=2, groups=2)
        self.gate = nn.Conv2d(8, 8, 1)
        self.last = nn.Linear(12 * 4 * 4, 5)

    def forward(self, x):
        x = self.first(x)
        x = torch.relu(x + self.deep(x))
        x = x * torch.sigmoid(self.gate(x.mean((2, 3), keepdim=True)))
        x = torch.cat([x, self.wide(x)], dim=1)
        return self.last(torch.nn.functional.avg_pool2d(x, 3, 2, 1).flatten(1))


class Sequence(nn.Module):
    """Two recurrent layers, of which the last step decides."""

    def __init__(self):
        super().__init__()
        self.layers = nn.LSTM(6, 10, 2, batch_first=True)
        self.last = nn.Linear(10, 3)

    def forward(self, x):
        found, (hidden, _) = self.layers(x)
        return self.last(found[:, -1] + hidden[-1])


class Block(nn.Module):
    """A layer of a transformer, as many write it."""

    def __init__(self, is_causal):
        super().__init__()
        self.is_causal = is_causal
        self.before, self.between = nn.LayerNorm(16), nn.LayerNorm(16)
        self.all, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.wide = nn.Sequential(nn.Linear(16, 40), nn.GELU(), nn.Linear(40, 16))

    def forward(self, x):
        batch, steps, width = x.shape
        parts = self.all(self.before(x)).split(width, dim=2)
        query, key, value = (one.view(batch, steps, 4, 4).transpose(1, 2) for one in parts)
        attend = nn.functional.scaled_dot_product_attention
        found = attend(query, key, value, is_causal=self.is_causal).transpose(1, 2)
        x = x + self.out(found.contiguous().view(batch, steps, width))
        return x + self.wide(self.between(x))


class Transformer(nn.Module):
    """Rows of a picture with learned places, two layers, and the mean over the rows."""

    def __init__(self):
        super().__init__()
        self.first, self.places = nn.Linear(8, 16), nn.Parameter(torch.randn(1, 9, 16))
        self.layers = nn.Sequential(Block(False), Block(True))
        self.last = nn.Linear(16, 5)

    def forward(self, x):
        return self.last(self.layers(self.first(x) + self.places).mean(1))


class Encoder(nn.Module):
    """Layers of torch's own."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, activation="gelu")
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.last = nn.Linear(16, 5)

    def forward(self, x):
        return self.last(self.layers(self.first(x))[:, 0])


class Words(nn.Module):
    """Words and their places, looked up; the mean over all, beside the last step of an LSTM."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(300, 8, padding_idx=0), nn.Embedding(12, 8)
        self.layers = nn.LSTM(8, 10, batch_first=True)
        self.mean, self.last = nn.Linear(8, 3), nn.Linear(10, 3)

    def forward(self, x):
        x = self.words(x) + self.places(torch.arange(12))
        return self.mean(x.mean(1)) + self.last(self.layers(x)[0][:, -1])


class ConvNext(nn.Module):
    """A block with its channels last between two permutations, and one scale for each channel."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 4, 4)
        self.deep = nn.Conv2d(8, 8, 7, padding=3, groups=8)
        self.norm, self.wide = nn.LayerNorm(8), nn.Linear(8, 32)
        self.back, self.gamma = nn.Linear(32, 8), nn.Parameter(torch.linspace(0.2, 0.8, 8))
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 8).view(8, 1, 1))
        self.last = nn.Linear(8, 5)

    def forward(self, x):
        x = self.stem(x)
        y = self.norm(self.deep(x).permute(0, 2, 3, 1))
        y = self.gamma * self.back(torch.nn.functional.gelu(self.wide(y)))
        x = x + y.permute(0, 3, 1, 2)
        x = x + torch.relu(self.deep(x)) * self.scale
        return self.last(x.mean((2, 3)))


class Shuffle(nn.Module):
    """Half of the channels through a layer, then all in groups that change places; axes turned."""

    def __init__(self):
        super().__init__()
        self.first, self.part = nn.Conv2d(2, 12, 3), nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.second, self.last = nn.Conv2d(12, 4, 1), nn.Linear(4 * 30, 3)

    def forward(self, x):
        a, b = torch.relu(self.first(x)).chunk(2, dim=1)
        x = torch.cat([a, self.part(b)], dim=1)
        n, c, h, w = x.shape
        x = x.view(n, 3, c // 3, h, w).transpose(1, 2).contiguous().view(n, c, h, w)
        x = self.second(x[:, :, :, 1:]).transpose(2, 3)
        return self.last(torch.relu(self.second(torch.cat([x] * 3, 1))).flatten(1))


NETS = {
    "convnext": (ConvNext, (3, 24, 24)),
    "shuffle": (Shuffle, (2, 7, 9)),
    "words": (Words, (12,)),
    "encoder": (Encoder, (7, 8)),
    "transformer": (Transformer, (9, 8)),
    "sequence": (Sequence, (14, 6)),
    "residual": (Residual, (3, 16, 16)),
    "perceptron": (
        lambda: nn.Sequential(nn.Linear(20, 30), nn.GELU(), nn.Linear(30, 4), nn.Tanh()),
        (20,),
    ),
    "signal": (
        lambda: nn.Sequential(
            nn.Conv1d(2, 6, 5, 2), nn.LeakyReLU(0.1), nn.Flatten(), nn.Linear(84, 3)
        ),
        (2, 32),
    ),
    "parts": (  # sizes that are rounded up, and means of parts
        lambda: nn.Sequential(
            nn.Conv2d(2, 6, 3),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            nn.AdaptiveAvgPool2d((2, 3)),
            nn.Flatten(),
            nn.Linear(36, 3),
        ),
        (2, 10, 14),
    ),
    "pictures": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 6, (3, 5), padding=(1, 2)),
            nn.BatchNorm2d(6),
            nn.Hardswish(),
            nn.MaxPool2d(3, 2, 1),
            nn.Conv2d(6, 6, 3, 2, 1, groups=6),  # fours do not go into it, nor into the next
            nn.Conv2d(6, 10, 2, groups=2),
            nn.Dropout(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(10, 3),
        ),
        (1, 12, 12),
    ),
}


def made(name, keep=()):
    torch.manual_seed(0)
    net, shape = NETS[name]
    model = net().eval()
    inputs = torch.randint(300, (200, *shape)) if name == "words" else torch.randn(200, *shape)
    for one in model.modules():
        if isinstance(one, nn.BatchNorm2d):
            one.running_mean.uniform_(-0.3, 0.3)
            one.running_var.uniform_(0.5, 1.5)
    network, program = capture(model, inputs[:2])
    network = widened(network, kept_layers(network, keep))
    integer = build(network, observe(program, inputs.split(50)))
    return model, inputs, network, integer


def compiled(integer, folder):
    for file, text in c_sources(integer).items():
        (folder / file).write_text(text)
    subprocess.run(
        ["gcc", *FLAGS, WHOLE_REGISTERS, "-c", "kernels.c", "network.c"], cwd=folder, check=True
    )
    subprocess.run(
        ["gcc", "-shared", "-o", "net.so", "kernels.o", "network.o"], cwd=folder, check=True
    )
    return ctypes.CDLL(folder / "net.so")


def run_in_c(library, integer, inputs):
    """What C makes of bytes (num, ...), one after the other in one arena of rubbish."""
    arena = np.full(plan_arena(integer).size, 77, np.int8)
    kind = np.dtype(f"int{integer.steps[integer.output].bits}")
    found = np.zeros((len(inputs), *integer.shapes[integer.output]), kind)
    for one, out in zip(inputs, found, strict=True):
        places = (np.ascontiguousarray(one), out, arena)
        library.network_run(*(ctypes.c_void_p(place.ctypes.data) for place in places))
    return found


@pytest.mark.parametrize("name", NETS)
def test_bytes_are_near_floats_and_c_makes_the_same_bits(name, tmp_path):
    model, inputs, network, integer = made(name)

    with torch.no_grad():
        wanted = model(inputs).numpy()
    width = wanted.max() - wanted.min()
    assert np.abs(integer.predict(inputs.numpy()) - wanted).max() < 0.05 * width

    pytest.importorskip("onnxruntime")
    given = {"input": inputs.numpy()}
    in_floats = exact_session_of(onnx_model(network)).run(None, given)[0]
    assert in_floats == pytest.approx(wanted, abs=1e-5)
    found = exact_session_of(onnx_model(network, integer)).run(None, given)[0]
    assert np.abs(found - integer.predict(inputs.numpy())).max() < 0.05 * width

    if not shutil.which("gcc"):
        pytest.skip("there is no gcc")
    random = np.random.default_rng(1)
    given = random.integers(-128, 128, (1000, *integer.shapes[integer.input]), dtype=np.int8)
    assert (run_in_c(compiled(integer, tmp_path), integer, given) == integer.run(given)).all()


WIDER = {
    "residual": [("first.*", "int16"), ("wide", "int16"), ("last", "int16")],
    "parts": [("*", "int16")],
    "pictures": [("*", "int16")],
    "transformer": [("layers.0.*", "int16"), ("last", "int16")],
    "sequence": [("last", "int16")],
}


@pytest.mark.parametrize("name", WIDER)
def test_layers_of_16_bits_are_near_floats_and_c_makes_the_same_bits(name, tmp_path):
    model, inputs, network, integer = made(name, WIDER[name])
    wide = [value for value, step in integer.steps.items() if step.bits == 16]
    assert integer.output in wide
    with torch.no_grad():
        wanted = model(inputs).numpy()
    width = wanted.max() - wanted.min()
    assert np.abs(integer.predict(inputs.numpy()) - wanted).max() < 0.05 * width

    pytest.importorskip("onnxruntime")
    found = exact_session_of(onnx_model(network, integer)).run(None, {"input": inputs.numpy()})[0]
    assert np.abs(found - integer.predict(inputs.numpy())).max() < 0.05 * width

    if not shutil.which("gcc"):
        pytest.skip("there is no gcc")
    bits = integer.steps[integer.input].bits
    given = np.random.default_rng(1).integers(
        -(2 ** (bits - 1)), 2 ** (bits - 1), (1000, *integer.shapes[integer.input])
    )
    given = given.astype(f"int{bits}")
    assert (run_in_c(compiled(integer, tmp_path), integer, given) == integer.run(given)).all()


@pytest.mark.parametrize(("keep", "num_floats", "apart"), [("*", 6, 1e-5), ("0", 1, 5e-2)])
def test_layers_in_floats_are_near_those_of_training(keep, num_floats, apart):
    model, inputs, network, integer = made("parts", [(keep, "fp32")])
    with torch.no_grad():
        wanted = model(inputs).numpy()

    assert sum(step.bits == 32 for step in integer.steps.values()) >= num_floats
    found = integer.predict(inputs.numpy())
    assert found == pytest.approx(wanted, abs=apart * float(np.ptp(wanted)))
    pytest.importorskip("onnxruntime")
    given = exact_session_of(onnx_model(network, integer)).run(None, {"input": inputs.numpy()})[0]
    assert given == pytest.approx(found, abs=apart * float(np.ptp(wanted)))


@pytest.mark.parametrize(
    ("keep", "answer"),
    [
        (("layers", "int16"), "`layers` is no convolution and no linear layer .recurrence"),
        (("other", "fp32"), "no layer `other`"),
        (("last", "int4"), "`last=int4` names no form"),
    ],
)
def test_what_cannot_be_kept_wider_is_refused_by_name(keep, answer):
    with pytest.raises(UsageError, match=answer) as refused:
        made("sequence", [keep])
    assert "`last" in refused.value.hint


def test_the_last_word_about_a_layer_counts():
    network = made("parts")[2]
    found = kept_layers(network, [("*", "int16"), ("4", "fp32")])
    assert sorted(found.values()) == [16, 32]


@pytest.mark.skipif(not shutil.which("objdump") or not shutil.which("gcc"), reason="needs binutils")
def test_the_object_has_no_floating_point_and_a_planted_product_is_seen(tmp_path):
    compiled(made("residual")[3], tmp_path)
    (tmp_path / "planted.c").write_text("float f(float a, float b) { return a * b; }\n")
    subprocess.run(["gcc", *FLAGS, WHOLE_REGISTERS, "-c", "planted.c"], cwd=tmp_path, check=True)

    def floats(file):
        told = subprocess.run(["objdump", "-d", file], cwd=tmp_path, capture_output=True, text=True)
        return [line for line in told.stdout.splitlines() if "mm" in line and "%" in line]

    assert floats("planted.o")
    assert floats("kernels.o") == floats("network.o") == []
    told = subprocess.run(["nm", "-u", "kernels.o"], cwd=tmp_path, capture_output=True, text=True)
    assert told.stdout.split() in ([], ["U", "_GLOBAL_OFFSET_TABLE_"])


def test_onnx_of_bytes_keeps_recurrent_weights_in_bytes():
    pytest.importorskip("onnxruntime")
    _, inputs, network, integer = made("sequence")
    model = onnx_model(network, integer)
    kinds = [one.data_type for one in model.graph.initializer if len(one.dims) == 3]
    assert kinds.count(3) == 4  # two weights of each layer, as signed bytes
    wanted = integer.predict(inputs.numpy())
    found = exact_session_of(model).run(None, {"input": inputs.numpy()})[0]
    assert np.abs(found - wanted).max() < 0.05 * (wanted.max() - wanted.min())


def test_values_lie_apart_in_the_arena_and_close_to_the_least_size():
    integer = made("residual")[3]
    arena = plan_arena(integer)

    assert arena.bound <= arena.size <= 1.15 * arena.bound


def test_a_fraction_rounds_half_away_from_zero():
    multiplier, shift = fraction_of(0.5)
    assert scaled(np.array([1, -1, 3, -3, 2]), multiplier, shift).tolist() == [1, -1, 2, -2, 1]
    for factor in (1e-9, 0.3, 1.0, 7.3):
        multiplier, shift = fraction_of(factor)
        assert 0 <= multiplier < 2**31
        assert multiplier / 2**shift == pytest.approx(factor, rel=1e-6)


@pytest.mark.parametrize("observer", Observer)
def test_each_observer_holds_what_was_seen_but_for_extremes(observer):
    torch.manual_seed(0)
    network, program = capture(nn.Sequential(nn.Linear(8, 8)).eval(), torch.randn(2, 8))
    inputs = torch.randn(4000, 8)
    inputs[0, 0] = 50.0
    found = observe(program, inputs.split(1000), observer=observer)[network.input]

    assert found.low == pytest.approx(float(inputs.min()), rel=0.6)
    assert found.high == pytest.approx(50.0, rel=0.01) if observer is Observer.MIN_MAX else 50.0
    if observer is Observer.PERCENTILE:
        assert found.high < 10


def test_what_cannot_be_quantized_is_refused_by_name():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(4, 4)

        def forward(self, x):
            return torch.cumsum(self.last(x), dim=1)

    with pytest.raises(UsageError, match=r"1 of 2 operators .*aten.cumsum"):
        capture(Odd().eval(), torch.randn(2, 4))
    rest = nn.Sequential(nn.Conv2d(2, 4, 1), nn.Softsign(), nn.Conv2d(4, 4, 1), nn.ReLU())
    with pytest.raises(UsageError, match=r"(?s)2 of \d operators .*aten.abs.*aten.div[^,]*\.$"):
        capture(rest.eval(), torch.randn(2, 2, 4, 4))  # what follows is not blamed
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
    network, program = capture(model, torch.randn(2, 4))
    with pytest.raises(DataError, match="NonFiniteActivation"):
        observe(program, [torch.full((3, 4), float("nan"))])
    with pytest.raises(UsageError, match="no inputs"):
        observe(program, [])
    with torch.no_grad():
        model[0].bias.fill_(-100.0)
    network, program = capture(model, torch.randn(2, 4))
    with pytest.raises(DataError, match="ConstantActivation"):
        build(network, observe(program, [torch.randn(9, 4)]))
