"""The lever autocast on tiny models: outputs, weights that move, and the scaling of fp16."""

import dataclasses
from collections import OrderedDict, namedtuple
from itertools import pairwise
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from steptime.levers import load  # noqa: E402
from steptime.levers.base import Facts  # noqa: E402
from steptime.levers.precision.loss_scaling import FIRST_SCALE  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402

LEVER = load("autocast")
BF16, FP16 = {"dtype": "bf16"}, {"dtype": "fp16"}


@pytest.fixture
def session():
    with PlainSession(torch) as session:
        yield session


def make_regression(seed=0, width=32):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, width), torch.nn.Tanh(), torch.nn.Linear(width, 1)
    )
    inputs = torch.randn(64, 8)
    return model, inputs, inputs.sum(1, keepdim=True)


def loss_of(model, inputs, targets):
    """Its gradients times 2**16 fit into fp16."""
    return 0.05 * torch.nn.functional.mse_loss(model(inputs), targets)


def gradients(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()])


# -- what comes out


Pair = namedtuple("Pair", "first second")


@dataclasses.dataclass(frozen=True)
class Frozen:
    logits: object
    name: str = "kept"


@dataclasses.dataclass(slots=True)
class Slotted:
    logits: object


class ModelOutput(OrderedDict):
    """Items that are attributes as well, as transformers have them."""

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)


class Returns(torch.nn.Module):
    def __init__(self, pack):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.pack = pack

    def forward(self, x):
        return self.pack(self.linear(x))


@pytest.mark.parametrize(
    ("pack", "unpack"),
    [
        (lambda t: t, lambda out: out),
        (lambda t: (1, [t, None]), lambda out: out[1][0]),
        (lambda t: {"a": {"b": t}}, lambda out: out["a"]["b"]),
        (lambda t: Pair("x", t), lambda out: out.second),
        (Frozen, lambda out: out.logits),
        (Slotted, lambda out: out.logits),
        (lambda t: ModelOutput(logits=t), lambda out: out.logits),
        (lambda t: ModelOutput(logits=t), lambda out: out["logits"]),
        (lambda t: SimpleNamespace(inner=[Frozen(t)]), lambda out: out.inner[0].logits),
        (lambda t: t.max(dim=1), lambda out: out.values),
    ],
)
def test_what_a_model_returns_is_float32_as_without(session, pack, unpack):
    model = Returns(pack)
    plain = model(torch.ones(2, 4))
    LEVER.apply(BF16, session)

    outputs = model(torch.ones(2, 4))

    assert type(outputs) is type(plain)
    assert unpack(outputs).dtype == torch.float32
    assert unpack(outputs).requires_grad
    assert not torch.equal(unpack(outputs), unpack(plain)), "it was computed in bf16"
    torch.testing.assert_close(unpack(outputs), unpack(plain), rtol=2e-2, atol=2e-2)


def test_what_holds_nothing_in_16_bits_is_handed_on_as_the_object_it_is(session):
    kept = {"list": [1, torch.ones(2)], "text": "x"}
    kept["itself"] = kept
    model = Returns(lambda t: kept)
    LEVER.apply(BF16, session)

    assert model(torch.ones(2, 4)) is kept


def test_what_a_model_keeps_for_itself_is_not_changed(session):
    model = Returns(lambda t: model.stash.update(out=t) or model.stash)
    model.stash = {}
    LEVER.apply(BF16, session)

    outputs = model(torch.ones(2, 4))

    assert outputs["out"].dtype == torch.float32
    assert model.stash["out"].dtype == torch.bfloat16


def test_evaluation_without_gradients_is_left_alone(session):
    model = Returns(lambda t: t)
    with torch.no_grad():
        plain = model(torch.ones(2, 4))
        LEVER.apply(BF16, session)
        assert torch.equal(model(torch.ones(2, 4)), plain)


# -- weights


def losses_of(model, inputs, targets, *, steps, around=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    found = []
    with around or torch.enable_grad():
        for _ in range(steps):
            optimizer.zero_grad()
            loss = loss_of(model, inputs, targets)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
    return found


@pytest.mark.parametrize("settings", [BF16, FP16], ids=["bf16", "fp16"])
@pytest.mark.parametrize("is_inside", [False, True], ids=["bare", "inside a context"])
def test_the_weights_in_use_are_those_of_the_last_update(session, settings, is_inside):
    around = torch.autocast("cpu", enabled=False) if is_inside else None
    expected = losses_of(*make_regression(), steps=6)
    LEVER.apply(settings, session)

    losses = losses_of(*make_regression(), steps=6, around=around)

    assert losses == pytest.approx(expected, rel=0.03)
    assert all(after < before for before, after in pairwise(losses))


def test_a_script_inside_its_own_autocast_is_left_to_it(session):
    model = Returns(lambda t: t)
    LEVER.apply(BF16, session)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(torch.ones(2, 4)).dtype == torch.bfloat16


def test_an_exception_inside_leaves_autocast_too(session):
    model = Returns(lambda t: t.numpy())
    LEVER.apply(BF16, session)

    with pytest.raises((RuntimeError, TypeError)):
        model(torch.ones(2, 4))

    assert not torch.is_autocast_enabled("cpu")


# -- the scale of fp16


def small_step(model, inputs, targets, *, factor=1.0, clip=None, parts=1):
    """Gradients of one step, and the norm that clipping saw."""
    model.zero_grad()
    for x, y in zip(inputs.chunk(parts), targets.chunk(parts), strict=True):
        loss = loss_of(model, x, y) / parts * factor
        loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip) if clip else None
    return gradients(model).clone(), norm


@pytest.mark.parametrize("parts", [1, 4], ids=["whole", "accumulated"])
def test_clipping_and_accumulation_see_true_gradients(session, parts):
    model, inputs, targets = make_regression()
    expected, norm = small_step(model, inputs, targets, clip=0.05, parts=parts)
    LEVER.apply(FP16, session)

    found, norm_found = small_step(model, inputs, targets, clip=0.05, parts=parts)

    assert norm_found.item() == pytest.approx(norm.item(), rel=0.01)
    assert (found - expected).norm() < 0.01 * expected.norm()


def test_gradients_too_small_for_fp16_are_kept(session):
    model, inputs, targets = make_regression()
    expected, _ = small_step(model, inputs, targets, factor=1e-6)
    LEVER.apply(FP16, session)

    found, _ = small_step(model, inputs, targets, factor=1e-6)

    assert (found - expected).norm() < 0.02 * expected.norm()


def test_what_was_accumulated_before_keeps_every_bit(session):
    model, inputs, _ = make_regression()
    model(inputs).sum().backward()
    model.zero_grad(set_to_none=False)
    head = model[2].weight
    head.grad.fill_(1 / 3)
    LEVER.apply(FP16, session)

    model[0](inputs).sum().backward()  # reaches the first layer alone
    model(inputs).sum().mul(0).backward()

    assert torch.equal(head.grad, torch.full_like(head, 1 / 3))


def test_an_update_with_gradients_that_are_not_finite_is_left_out_and_counted(session):
    model, inputs, targets = make_regression()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    LEVER.apply(FP16, session)
    before = [p.clone() for p in model.parameters()]

    small_step(model, inputs, targets, factor=1e6)
    optimizer.step()
    unchanged = all(map(torch.equal, before, model.parameters()))
    num_skipped = session.counts["skipped_update"]
    small_step(model, inputs, targets)
    optimizer.step()

    assert unchanged
    assert num_skipped == session.counts["skipped_update"] == 1
    assert not any(map(torch.equal, before, model.parameters()))


def test_clipping_values_does_not_hide_an_overflow(session):
    model, inputs, targets = make_regression()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    LEVER.apply(FP16, session)
    before = [p.clone() for p in model.parameters()]

    small_step(model, inputs, targets, factor=1e6)
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.1)
    optimizer.step()

    assert all(map(torch.equal, before, model.parameters()))


def test_the_scale_falls_until_a_large_loss_fits(session):
    model, inputs, targets = make_regression()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-7)
    expected, _ = small_step(*make_regression(), factor=3e2)
    LEVER.apply(FP16, session)

    for _ in range(12):
        found, _ = small_step(model, inputs, targets, factor=3e2)
        is_finite = bool(found.isfinite().all())
        optimizer.step()

    assert is_finite
    assert 1 < session.counts["skipped_update"] < 12
    assert found.norm().item() == pytest.approx(expected.norm().item(), rel=0.1)


def test_the_gradient_of_an_input_is_true_as_well(session):
    model, inputs, targets = make_regression()
    inputs.requires_grad_()
    loss_of(model, inputs, targets).backward()
    expected, inputs.grad = inputs.grad, None
    LEVER.apply(FP16, session)

    for _ in range(2):
        inputs.grad = None
        loss_of(model, inputs, targets).backward()

    assert (inputs.grad - expected).norm() < 0.01 * expected.norm()


def test_a_weight_outside_of_any_model_has_its_true_gradient_in_the_first_step(session):
    model, inputs, _ = make_regression()
    factor = torch.ones(1, requires_grad=True)
    (factor * model(inputs)).sum().backward()
    expected, factor.grad = factor.grad, None
    LEVER.apply(FP16, session)

    (factor * model(inputs)).sum().backward()

    assert factor.grad.item() == pytest.approx(expected.item(), rel=0.02)


class Checkpointed(torch.nn.Module):
    def __init__(self, *, use_reentrant):
        super().__init__()
        self.body, _, _ = make_regression()
        self.use_reentrant = use_reentrant

    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(self.body, x, use_reentrant=self.use_reentrant)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointed_models_have_true_gradients(session, use_reentrant):
    model = Checkpointed(use_reentrant=use_reentrant)
    _, inputs, targets = make_regression()
    inputs.requires_grad_()
    expected, _ = small_step(model, inputs, targets)
    LEVER.apply(FP16, session)

    found, _ = small_step(model, inputs, targets)

    assert (found - expected).norm() < 0.01 * expected.norm()


def test_several_losses_at_once_and_losses_by_name_are_scaled(session):
    model, inputs, targets = make_regression()
    losses = lambda: [0.1 * model(inputs).mean(), 0.1 * (model(inputs) - targets).abs().mean()]  # noqa: E731
    torch.autograd.backward(losses())
    expected = gradients(model).clone()
    LEVER.apply(FP16, session)

    model.zero_grad()
    torch.autograd.backward(tensors=losses())

    assert (gradients(model) - expected).norm() < 0.01 * expected.norm()


def test_a_backward_that_makes_a_graph_is_not_scaled(session):
    model, inputs, targets = make_regression()
    LEVER.apply(FP16, session)

    with pytest.warns(UserWarning, match="reference cycle"):
        loss_of(model, inputs, targets).backward(create_graph=True)

    assert gradients(model).norm() < 1e3
    model.zero_grad()


def test_two_optimizers_after_two_losses_skip_only_what_overflowed(session):
    (one, inputs, targets), (other, _, _) = make_regression(), make_regression(1)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (one, other)]
    LEVER.apply(FP16, session)
    before = [one[0].weight.clone(), other[0].weight.clone()]

    loss_of(one, inputs, targets).backward()
    (loss_of(other, inputs, targets) * 1e6).backward()
    for optimizer in optimizers:
        optimizer.step()

    assert not torch.equal(before[0], one[0].weight)
    assert torch.equal(before[1], other[0].weight)


def test_the_first_scale_is_that_of_torch():
    assert torch.amp.GradScaler("cpu").get_scale() == FIRST_SCALE


# -- where it applies


@pytest.mark.parametrize(
    ("device", "capability", "expected"),
    [
        ("cpu", "amx_bf16", [BF16]),
        ("cpu", "avx512_fp16", [FP16]),
        ("cuda", "sm_75", [FP16]),
        ("cuda", "sm_80", [BF16, FP16]),
        ("cuda", "sm_100", [BF16, FP16]),
        ("cuda", "sm_61", []),
        ("cpu", "avx2", []),
    ],
)
def test_only_what_the_device_computes_fast_is_tried(device, capability, expected):
    facts = Facts(torch_version="2.9", device=device, capabilities=(capability,))

    assert list(LEVER.space(facts)) == expected
    assert (LEVER.applies(facts) is None) == bool(expected)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"uses_autocast": True}, "autocast itself"),
        ({"uses_scaler": True}, "scales its loss itself"),
        ({"parameter_dtypes": ("bfloat16", "float32")}, "bfloat16"),
        ({"capabilities": ("avx2",)}, "amx_bf16"),
    ],
)
def test_it_says_why_it_is_not_offered(change, word):
    facts = dataclasses.replace(Facts(torch_version="2.9", capabilities=("amx_bf16",)), **change)

    assert word in LEVER.applies(facts)
