"""`module_precision`: which modules compute in which precision, and that nothing stays on them."""

from __future__ import annotations

import dataclasses

import pytest

torch = pytest.importorskip("torch")

from steptime.levers import load  # noqa: E402
from steptime.levers.base import Facts  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402

LEVER = load("module_precision")
ENDS, NORMS, LOW = LEVER.space(Facts(torch_version="2.9", capabilities=("amx_bf16",)))
nn = torch.nn


@pytest.fixture
def session():
    with PlainSession(torch) as session:
        yield session


class Tokens(nn.Module):
    def __init__(self, *, is_checkpointed=False):
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.first, self.middle = nn.Linear(32, 32), nn.Linear(32, 32)
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 50)
        self.is_checkpointed = is_checkpointed
        self.dtypes = {}

    def note(self, name, x):
        self.dtypes.setdefault(name, []).append(str(x.dtype).removeprefix("torch."))
        return x

    def inner(self, x):
        x = x + self.note("middle", self.middle(x))
        return self.note("norm", self.norm(x))

    def forward(self, tokens):
        x = self.note("embedding", self.embedding(tokens))
        x = self.note("first", self.first(x)).tanh()
        if self.is_checkpointed:
            x = torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False)
        else:
            x = self.inner(x)
        return self.note("head", self.head(x))


def train(*, steps=3, **options):
    torch.manual_seed(0)
    model, tokens = Tokens(**options), torch.randint(50, (8, 12))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        logits = model(tokens)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model, logits


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (ENDS, {"first": "float32", "middle": "bfloat16", "head": "float32"}),
        (NORMS, {"first": "float32", "middle": "bfloat16", "norm": "float32", "head": "float32"}),
        (LOW, {"embedding": "bfloat16", "first": "bfloat16", "head": "bfloat16"}),
    ],
    ids=["ends", "ends and norms", "low embeddings"],
)
def test_each_module_computes_in_its_precision(session, settings, expected):
    plain, _, _ = train()
    LEVER.apply(settings, session)
    losses, model, logits = train()

    assert {name: model.dtypes[name][0] for name in expected} == expected
    assert logits.dtype == torch.float32
    assert all(p.dtype == torch.float32 for p in model.parameters())
    assert losses != plain
    assert losses == pytest.approx(plain, rel=0.02)


def test_logits_in_float32_are_nearer_to_the_truth_than_by_autocast(session):
    """What it is for: a last layer that makes large numbers of small differences."""

    def logits_of(lever, settings):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 64))
        with torch.no_grad():
            model[2].bias.fill_(100.0)
        x = torch.randn(32, 64)
        undo = lever.apply(settings, session) if lever else lambda: None
        found = model(x).detach() - 100.0
        undo()
        return found

    truth = logits_of(None, {})
    by_autocast = logits_of(load("autocast"), {"dtype": "bf16"})
    by_module = logits_of(LEVER, ENDS)

    assert (by_module - truth).abs().max() < 0.1 * (by_autocast - truth).abs().max()


@pytest.mark.parametrize("settings", [ENDS, LOW], ids=["ends", "low embeddings"])
def test_what_the_script_checkpoints_is_computed_again_in_the_same_precision(session, settings):
    LEVER.apply(settings, session)
    plain, _, _ = train()
    losses, model, _ = train(is_checkpointed=True)

    assert losses == plain
    assert len(set(model.dtypes["middle"])) == 1
    assert len(model.dtypes["middle"]) == 6


def test_inside_the_scripts_own_autocast_it_does_nothing(session):
    LEVER.apply(ENDS, session)
    model = Tokens()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(torch.randint(50, (2, 3)))

    assert model.dtypes["head"] == ["bfloat16"]


def test_nothing_is_left_on_the_modules(session):
    undo = LEVER.apply(LOW, session)
    _, model, _ = train()
    undo()

    assert all("_compiled_call_impl" not in vars(one) for one in model.modules())
    model.dtypes.clear()
    model(torch.randint(50, (2, 3)))
    assert model.dtypes["embedding"] == ["float32"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"uses_autocast": True}, "autocast itself"),
        ({"capabilities": ("avx2",)}, "16 bits"),
        ({"capabilities": ("avx512_fp16",)}, "bf16"),
        ({"parameter_dtypes": ("float64",)}, "float64"),
    ],
)
def test_it_says_why_it_is_not_offered(change, words):
    facts = Facts(torch_version="2.9", capabilities=("amx_bf16",))
    assert LEVER.applies(facts) is None
    assert words in LEVER.applies(dataclasses.replace(facts, **change))
