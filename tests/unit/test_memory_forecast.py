"""`steptime.plan.memory` against the events of torch's allocator, and what it cannot know."""

import contextlib
import json
import sys
import types
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812
from torch.profiler import ProfilerActivity, profile, record_function  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import steptime.plan  # noqa: E402
from steptime.errors import MissingExtraError, NotFoundError, UsageError  # noqa: E402


def true_peak(make, *, loss, optimizer, autocast=None, num_micro_batches=1, set_to_none=True):
    """The most that torch's CPU allocator had given out in the third step."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        torch.manual_seed(0)
        model, batch = make()
        stepper = optimizer([one for one in model.parameters() if one.requires_grad])
        for number in range(3):
            with record_function("looked_at" if number == 2 else "other"):
                stepper.zero_grad(set_to_none=set_to_none)
                for _ in range(num_micro_batches):
                    with torch.autocast("cpu", autocast) if autocast else contextlib.nullcontext():
                        output = model(*batch)
                        found = loss(output)
                    found.backward()
                stepper.step()
                del output, found
    events = prof.profiler.kineto_results.events()
    step = next(e for e in events if e.name() == "looked_at")
    held = peak = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        held += event.nbytes()
        if step.start_ns() <= event.start_ns() <= step.end_ns():
            peak = max(peak, held)
    return peak


def square(output):
    return output.float().square().mean()


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=1e-3)


class Blocks(nn.Module):
    """Two blocks with attention, tied ends, and checkpointing if that is wanted."""

    def __init__(self, *, checkpoints=False):
        super().__init__()
        self.tokens = nn.Embedding(200, 64)
        self.blocks = nn.ModuleList(nn.Linear(64, 192) for _ in range(2))
        self.head = nn.Linear(64, 200, bias=False)
        self.head.weight = self.tokens.weight
        self.checkpoints = checkpoints

    def block(self, part, x):
        q, k, v = part(x).view(*x.shape[:2], 3, 4, 16).permute(2, 0, 3, 1, 4)
        found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + F.silu(found.transpose(1, 2).reshape(x.shape)) * x

    def forward(self, tokens):
        x = self.tokens(tokens)
        for part in self.blocks:
            if self.checkpoints:
                x = checkpoint(self.block, part, x, use_reentrant=False)
            else:
                x = self.block(part, x)
        return self.head(x)


def language(*, checkpoints=False):
    return Blocks(checkpoints=checkpoints), (torch.randint(200, (4, 64)),)


def frozen():
    model, batch = language()
    model.requires_grad_(False)
    model.blocks[1].requires_grad_(True)
    return model, batch


def convolutions():
    model = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True)),
        *(nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1)),
        *(nn.Flatten(), nn.Linear(32, 10)),
    )
    return model, (torch.randn(4, 3, 32, 32),)


class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.LSTM(64, 96, batch_first=True)

    def forward(self, x):
        return self.layer(x)[0]


def recurrent():
    return Last(), (torch.randn(8, 24, 64),)


CASES = {
    "attention, tied weights": (language, {"optimizer": adamw}),
    "checkpointed": (lambda: language(checkpoints=True), {"optimizer": sgd}),
    "autocast": (language, {"optimizer": adamw, "autocast": torch.bfloat16}),
    "frozen weights": (frozen, {"optimizer": adamw}),
    "accumulation": (language, {"optimizer": sgd, "num_micro_batches": 2}),
    "gradients kept": (language, {"optimizer": sgd, "set_to_none": False}),
    "convolutions": (convolutions, {"optimizer": sgd}),
    "a recurrent layer": (recurrent, {"optimizer": adamw}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_peak_is_that_of_the_allocator(name):
    make, how = CASES[name]
    true = true_peak(make, loss=square, **how)
    torch.manual_seed(0)
    model, batch = make()

    found = steptime.plan.memory(model, batch, loss=square, **how)

    assert found.peak.estimate == pytest.approx(true, rel=0.05)
    assert found.peak.low <= true <= found.peak.high
    assert sum(found.by_category.values()) == found.peak.estimate


def test_weights_gradients_and_states_are_closed_forms():
    model, batch = language()
    size = sum(one.numel() * 4 for one in model.parameters())

    found = steptime.plan.memory(model, batch, adamw, loss=square)

    assert found.by_category["weights"] == size
    assert found.by_category["optimizer"] == pytest.approx(2 * size, rel=0.001)
    assert found.by_category["inputs"] == 4 * 64 * 8
    assert (found.how, found.phase) == ("fake", "backward")


def test_what_the_caller_gave_is_left_as_it_is():
    model, batch = convolutions()
    optimizer = adamw(model.parameters())
    before = {name: one.clone() for name, one in model.state_dict().items()}
    random = torch.get_rng_state()

    steptime.plan.memory(model, batch, optimizer, loss=square)

    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert all(one.grad is None for one in model.parameters())
    assert not optimizer.state
    assert torch.equal(random, torch.get_rng_state())


def test_a_model_and_a_batch_on_meta_need_no_memory():
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(8192, 8192) for _ in range(16)))  # 4 GiB of weights
        batch = torch.empty(64, 8192)

    found = steptime.plan.memory(model, batch, sgd, loss=square)

    assert found.by_category["weights"] == 16 * (8192 * 8192 + 8192) * 4
    assert found.peak.estimate > 8 << 30


def test_measuring_needs_no_formula_for_a_recurrent_layer():
    true = true_peak(recurrent, loss=square, optimizer=sgd)
    model, batch = recurrent()

    found = steptime.plan.memory(model, batch, sgd, loss=square, measure=True)

    assert found.how == "measured"
    assert found.peak.estimate == pytest.approx(true, rel=0.01)


def test_a_size_that_depends_on_values_is_made_up_and_said():
    class Chooses(nn.Module):
        def __init__(self):
            super().__init__()
            self.router, self.expert = nn.Linear(32, 4), nn.Linear(32, 32)

        def forward(self, x):
            chosen = self.router(x).argmax(-1)
            parts = [self.expert(x[torch.where(chosen == n)[0]]) for n in range(4)]
            return torch.cat(parts)

    true = true_peak(lambda: (Chooses(), (torch.randn(256, 32),)), loss=square, optimizer=sgd)

    found = steptime.plan.memory(Chooses(), torch.randn(256, 32), sgd, loss=square)

    assert any(one.startswith("made_up_size: aten.nonzero") for one in found.unknown)
    assert found.peak.estimate == pytest.approx(true, rel=0.1)


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.layer = nn.Embedding(100, 32), nn.LSTM(32, 64, batch_first=True)

    def forward(self, x, lengths):
        pack, pad = nn.utils.rnn.pack_padded_sequence, nn.utils.rnn.pad_packed_sequence
        rows = pack(self.tokens(x), lengths, batch_first=True, enforce_sorted=False)
        return pad(self.layer(rows)[0], batch_first=True)[0]


class Experts(nn.Module):
    """Two of four experts for each row; all rows choose the same ones."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(32, 4)
        nn.init.constant_(self.router.weight, 0.0)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32)) for _ in range(4)
        )

    def forward(self, x):
        shares, chosen = self.router(x).softmax(-1).topk(2)
        found = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            row, place = torch.where(chosen == number)
            found = found.index_add(0, row, expert(x[row]) * shares[row, place, None])
        return found


def ctc(output):
    sizes = torch.full((8,), 40), torch.full((8,), 12)
    return F.ctc_loss(output.log_softmax(-1), torch.ones(8, 12, dtype=torch.long), *sizes)


UNSURE = {
    "packed rows": (
        lambda: (Packed(), (torch.randint(100, (16, 50)), torch.arange(5, 21))),
        {"loss": square},
        "fake",
    ),
    "CTC": (lambda: (nn.Linear(40, 30), (torch.randn(40, 8, 40),)), {"loss": ctc}, "measured"),
    "transposed": (
        lambda: (nn.ConvTranspose2d(32, 3, 4, 2, 1), (torch.randn(8, 32, 32, 32),)),
        {"loss": square},
        "measured",
    ),
    "three dimensions": (
        lambda: (
            nn.Sequential(nn.Conv3d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv3d(8, 8, 3)),
            (torch.randn(2, 1, 12, 24, 24),),
        ),
        {"loss": square},
        "measured",
    ),
    "experts": (lambda: (Experts(), (torch.randn(512, 32),)), {"loss": square}, "measured"),
}


@pytest.mark.parametrize("name", UNSURE)
def test_what_formulas_leave_open_is_measured_and_what_lengths_decide_is_run(name):
    make, wanted, how = UNSURE[name]
    true = true_peak(make, optimizer=adamw, **wanted)
    torch.manual_seed(0)
    model, batch = make()

    found = steptime.plan.memory(model, batch, adamw, **wanted)

    assert found.how == how
    assert found.peak.low <= true <= found.peak.high
    if not found.unknown:
        assert found.peak.estimate == pytest.approx(true, rel=0.02)


def test_control_flow_on_the_batch_follows_its_values():
    class Cuts(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(64, 64)

        def forward(self, x, lengths):
            return self.layer(x[:, : int(lengths.max())])

    def peak(longest):
        batch = torch.randn(8, 100, 64), torch.tensor([longest])
        return steptime.plan.memory(Cuts(), batch, sgd, loss=square).peak.estimate

    assert peak(100) - peak(10) > 8 * 80 * 64 * 4


@torch.library.custom_op("steptime_tests::unknown_to_fakes", mutates_args=())
def unknown_to_fakes(x: torch.Tensor) -> torch.Tensor:
    return x * 2


unknown_to_fakes.register_autograd(lambda context, gradient: gradient * 2)


class Unknown(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(32, 32)

    def forward(self, x):
        return unknown_to_fakes(self.layer(x))


def test_an_operator_without_a_fake_kernel_is_named():
    found = steptime.plan.memory(Unknown(), torch.randn(64, 32), sgd, loss=square, measure=False)

    assert found.peak is None
    assert found.unknown == ("no_fake_kernel: steptime_tests.unknown_to_fakes.default",)


@pytest.mark.parametrize("measure", [None, True])
def test_measuring_goes_on_without_a_fake_kernel(measure):
    found = steptime.plan.memory(Unknown(), torch.randn(64, 32), sgd, loss=square, measure=measure)

    assert found.peak is not None
    assert found.unknown == ("no_fake_kernel: steptime_tests.unknown_to_fakes.default",)


def test_two_outputs_need_a_loss():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            y = self.layer(x)
            return y.sum(), y.square().mean()

    with pytest.raises(UsageError, match="loss="):
        steptime.plan.memory(Two(), torch.randn(2, 4), sgd)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [({"autocast": "int8"}, "bf16"), ({"loss": lambda output: output.detach()}, "no gradients")],
)
def test_wrong_arguments_are_said(arguments, said):
    with pytest.raises(UsageError, match=said):
        steptime.plan.memory(nn.Linear(4, 4), torch.randn(2, 4), sgd, **arguments)


def test_a_missing_configuration_is_said(tmp_path):
    with pytest.raises(NotFoundError, match=r"config\.json"):
        steptime.plan.memory(tmp_path / "config.json", torch.randn(2, 4), sgd)


def made_up_transformers(error=None):
    """A module with the two calls that are used, of which the second makes a small model."""

    def from_pretrained(path, *, local_files_only):
        if error is not None:
            raise error
        return json.loads(Path(path).read_text())

    def from_config(config):
        return nn.Linear(config["width"], config["width"])

    return types.SimpleNamespace(
        AutoConfig=types.SimpleNamespace(from_pretrained=from_pretrained),
        AutoModelForCausalLM=types.SimpleNamespace(from_config=from_config),
    )


def test_a_configuration_becomes_a_model_on_meta(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", made_up_transformers())
    (tmp_path / "config.json").write_text('{"width": 20000}')  # 1.5 GiB of weights, if it were real

    found = steptime.plan.memory(tmp_path, torch.randn(2, 20000), sgd, loss=square)

    assert found.by_category["weights"] == (20000 * 20000 + 20000) * 4


@pytest.mark.parametrize(
    ("module", "error", "said"),
    [
        (None, MissingExtraError, "needs transformers"),
        (made_up_transformers(ValueError("unknown model")), UsageError, "unknown model"),
    ],
    ids=["no transformers", "no language model"],
)
def test_a_configuration_that_makes_no_model_is_said(tmp_path, monkeypatch, module, error, said):
    monkeypatch.setitem(sys.modules, "transformers", module)
    (tmp_path / "config.json").write_text("{}")

    with pytest.raises(error, match=said):
        steptime.plan.memory(tmp_path, torch.randn(2, 4), sgd)


def test_a_model_without_parameters_is_said():
    with pytest.raises(UsageError, match="no parameters"):
        steptime.plan.memory(nn.ReLU(), torch.randn(2, 4), sgd)
