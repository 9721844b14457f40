"""The lever fused_attention: what it fuses, what it leaves alone, and that numbers stay."""

import copy
import math
import pickle

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from steptime.levers import load  # noqa: E402
from steptime.levers.base import Facts  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402
from unit.lever_switch import switching  # noqa: E402

LEVER = load("fused_attention")
WIDTH, HEADS, LENGTH, ROWS = 16, 2, 12, 3
PAST = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
PADDED = torch.arange(LENGTH) >= torch.tensor([[LENGTH], [7], [3]])  # (rows, length)


class Attention(nn.Module):
    """Projections to heads and back around `attend(self, q, k, v)`."""

    def __init__(self, attend):
        super().__init__()
        self.project, self.merge = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.drop, self.softmax = nn.Dropout(0.0), nn.Softmax(dim=-1)
        self.register_buffer("past", torch.ones(1, 1, LENGTH, LENGTH).tril())
        self.bias = nn.Parameter(torch.zeros(LENGTH, LENGTH))
        self.attend, self.kept = attend, None

    def forward(self, x):
        parts = self.project(x).view(ROWS, LENGTH, 3, HEADS, WIDTH // HEADS)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = self.attend(self, q, k, v)
        return self.merge(y.transpose(1, 2).reshape(ROWS, LENGTH, WIDTH))


class Net(nn.Module):
    def __init__(self, attend):
        super().__init__()
        self.block = type("Own", (Attention,), {})(attend)  # what is known of a class stays known

    def forward(self, x):
        return x + self.block(x)


def causal(self, q, k, v):
    scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    scores = scores.masked_fill(self.past[:, :, :LENGTH, :LENGTH] == 0, float("-inf"))
    return self.drop(F.softmax(scores, dim=-1)) @ v


def in_place(self, q, k, v):
    scores = torch.matmul(q, k.mT)
    scores /= 2.0
    scores.masked_fill_(~PAST, torch.finfo(scores.dtype).min)
    return torch.matmul(self.softmax(scores), v)


def chosen(self, q, k, v):
    scores = 0.3 * torch.matmul(q, k.transpose(2, 3))
    scores = torch.where(PAST, scores, torch.full([], -1e9))
    return torch.matmul(torch.softmax(scores.float(), -1).type_as(v), v)


def padded(self, q, k, v):
    scores = torch.matmul(q / 3, k.transpose(-1, -2)).masked_fill(PADDED[:, None, None], -1e9)
    return self.drop(scores.softmax(dim=-1)).to(v.dtype).matmul(v)


def added(self, q, k, v):
    mask = torch.zeros(ROWS, 1, 1, LENGTH).masked_fill(PADDED[:, None, None], -10000.0)
    scores = torch.matmul(q, k.transpose(-1, -2)) / torch.tensor(2.0)
    return nn.Softmax(dim=-1)(scores + mask) @ v


def two_masks(self, q, k, v):
    scores = torch.matmul(q, k.transpose(-1, -2)).masked_fill(~PAST, -1e30)
    return F.softmax(scores.masked_fill(PADDED[:, None, None], -1e30), dim=3) @ v


def all_to_all(self, q, k, v):
    scores = q @ k.transpose(-2, -1)
    assert scores.shape[-1] == scores.size(-2) == LENGTH
    return F.dropout(scores.softmax(-1), 0.5, training=False) @ v


def one_head(self, q, k, v):
    q, k, v = (one.flatten(0, 1) for one in (q, k, v))
    weights = F.softmax(torch.bmm(q, k.transpose(1, 2)).masked_fill(~PAST, -1e9), dim=-1)
    return torch.bmm(weights, v).view(ROWS, HEADS, LENGTH, WIDTH // HEADS)


def scaled_late(self, q, k, v):
    return F.softmax((q @ k.mT).masked_fill(~PAST, -1e9) / 8, -1) @ v


def by_einsum(self, q, k, v):
    scores = torch.einsum("bhid,bhjd->bhij", q, k) * 0.3
    scores.masked_fill_(~PAST, -math.inf)
    return torch.einsum("b h i j, b h j d -> b h i d", F.softmax(scores, -1), v)


def by_einsum_in_another_order(self, q, k, v):
    q, k, v = (one.transpose(1, 2) for one in (q, k, v))  # rows, positions, heads
    scores = torch.einsum("nkhd,nqhd->nhqk", k, q).masked_fill(~PAST, -1e20)
    weights = torch.softmax(scores / 2, dim=3)
    y = torch.einsum("nlhd,nhql->nqhd", [v, weights])
    return y.transpose(1, 2)


def by_einsum_and_matmul(self, q, k, v):
    q, k, v = (one.flatten(0, 1) for one in (q, k, v))
    weights = F.softmax(torch.einsum("bqd,bkd->bqk", (q, k)), -1)
    return (weights @ v).view(ROWS, HEADS, LENGTH, WIDTH // HEADS)


def added_causal(self, q, k, v):
    hidden = torch.full((LENGTH, LENGTH), -math.inf).triu(1)
    return F.softmax((q @ k.mT) / 2 + hidden, -1) @ v


def subtracted(self, q, k, v):
    hidden = 1e9 * PADDED[:, None, None].float()
    return F.softmax((q @ k.mT) - hidden, -1) @ v


def added_twice(self, q, k, v):
    distance = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)[None]
    scores = (q @ k.mT + PAST.float().log()) * 0.5 + -0.1 * distance.abs()
    return F.softmax(scores, -1) @ v


def added_and_hidden(self, q, k, v):
    padding = torch.zeros(ROWS, 1, 1, LENGTH).masked_fill(PADDED[:, None, None], -10000.0)
    return F.softmax((q @ k.mT + padding).masked_fill(~PAST, -1e9), -1) @ v


FUSED = [scaled_late, causal, in_place, chosen, padded, added, two_masks, all_to_all, one_head]
FUSED += [by_einsum, by_einsum_in_another_order, by_einsum_and_matmul, added_causal, subtracted]
FUSED += [added_twice, added_and_hidden]


def drops(self, q, k, v):
    return F.dropout(F.softmax(q @ k.mT, -1), 0.2) @ v


def keeps(self, q, k, v):
    self.kept = F.softmax(q @ k.mT, -1)
    return self.kept @ v


def adds_up(self, q, k, v):
    weights = F.softmax(q @ k.mT, -1)
    return weights @ v + weights.sum(-1, keepdim=True)


def learned_bias(self, q, k, v):
    return F.softmax(q @ k.mT + self.bias, -1) @ v


def over_queries(self, q, k, v):
    return F.softmax(q @ k.mT, dim=-2) @ v


def scaled_away(self, q, k, v):
    return F.softmax((q @ k.mT).masked_fill(~PAST, -1e9) * 1e-9, -1) @ v


def turned(self, q, k, v):
    return F.softmax((q @ k.mT).masked_fill(~PAST, -1e9) * -1.0, -1) @ v


def linear(self, q, k, v):
    weights = (q @ k.mT).relu()
    return (weights / (weights.sum(-1, keepdim=True) + 1)) @ v


def normalized_twice(self, q, k, v):
    return F.normalize(F.softmax(q @ k.mT, -1), dim=-1) @ v


def talking_heads(self, q, k, v):
    scores = (q @ k.mT).transpose(1, 2)
    return F.softmax(scores.transpose(1, 2), -1) @ v


def hidden_rows(self, q, k, v):
    return F.softmax((q @ k.mT).masked_fill(PAST, -1e9), -1) @ v


def weak_mask(self, q, k, v):
    return F.softmax((q @ k.mT).masked_fill(~PAST, -3.0), -1) @ v


def changed_values(self, q, k, v):
    scores = q @ k.mT
    scores[..., 0] = 0
    return F.softmax(scores, -1) @ v


def einsum_drops(self, q, k, v):
    weights = F.dropout(F.softmax(torch.einsum("bhid,bhjd->bhij", q, k), -1), 0.2)
    return torch.einsum("bhij,bhjd->bhid", weights, v)


def einsum_over_heads(self, q, k, v):
    weights = F.softmax(torch.einsum("bhid,bgjd->bhij", q, k), -1)
    return torch.einsum("bhij,bhjd->bhid", weights, v)


def einsum_turned(self, q, k, v):
    weights = F.softmax(torch.einsum("bhid,bhjd->bhij", q, k), -1)
    return torch.einsum("bhij,bhid->bhjd", weights, v)


def einsum_of_sums(self, q, k, v):
    weights = F.softmax(torch.einsum("bhid,bhjd->bhij", q, k), -1)
    return (
        torch.einsum("bhij,bhjd->bhid", weights, v) + torch.einsum("bhij->bhi", weights)[..., None]
    )


def subtracted_from(self, q, k, v):
    return F.softmax(torch.zeros(LENGTH, LENGTH) - q @ k.mT, -1) @ v


def lifted(self, q, k, v):
    scores = (q @ k.mT).masked_fill(~PAST, -1e9)
    return F.softmax(scores + 1e9 * torch.ones(LENGTH, LENGTH).triu(1), -1) @ v


def hidden_by_both(self, q, k, v):
    scores = (q @ k.mT + -1e9 * PADDED.flip(1)[:, None, None].float()).masked_fill(~PAST, -1e9)
    return F.softmax(scores, -1) @ v


LEFT = [einsum_drops, einsum_over_heads, einsum_turned, einsum_of_sums, subtracted_from]
LEFT += [lifted, hidden_by_both]
LEFT += [drops, adds_up, learned_bias, over_queries, scaled_away, turned, linear]
LEFT += [normalized_twice, talking_heads, hidden_rows, weak_mask, changed_values]


@pytest.fixture
def put_on():
    """Puts the lever on; what the test leaves on is taken off behind it."""
    with PlainSession(torch) as session, switching(LEVER, session) as apply:
        yield apply


@pytest.fixture
def calls(monkeypatch):
    """The calls of the fused kernel, apart from those that are tried on one row."""
    seen, original = [], F.scaled_dot_product_attention

    def attend(queries, *args, **kwargs):
        if len(queries) > 1:
            seen.append(kwargs)
        return original(queries, *args, **kwargs)

    monkeypatch.setattr(F, "scaled_dot_product_attention", attend)
    return seen


class Training:
    def __init__(self, attend):
        torch.manual_seed(1)
        self.model, self.inputs = Net(attend), torch.randn(ROWS, LENGTH, WIDTH)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def steps(self, number):
        losses = []
        for _ in range(number):
            self.optimizer.zero_grad()
            loss = self.model(self.inputs).square().mean()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return losses


@pytest.mark.parametrize("attend", FUSED)
def test_attention_in_many_words_is_fused_and_trains_alike(put_on, calls, attend):
    expected = Training(attend).steps(6)
    training = Training(attend)
    undo = put_on()
    losses = training.steps(4)
    undo()

    assert len(calls) == 3, "the first call is the one that is looked into"
    assert losses + training.steps(2) == pytest.approx(expected, rel=1e-4)
    assert len(calls) == 3


@pytest.mark.parametrize("attend", LEFT)
def test_what_only_looks_like_it_is_left_alone_to_the_last_bit(put_on, calls, attend):
    expected = Training(attend).steps(4)
    training = Training(attend)
    training.steps(0)
    put_on()

    assert training.steps(4) == expected
    assert calls == []


def test_weights_that_the_module_keeps_are_noticed_and_left_alone(put_on, calls):
    expected = Training(keeps).steps(6)
    training = Training(keeps)
    put_on()

    assert training.steps(6) == pytest.approx(expected, rel=1e-4)
    assert len(calls) == 1
    assert type(training.model.block.kept) is torch.Tensor


def test_a_row_that_an_added_mask_hides_stays_nan(put_on, calls):
    mask = torch.zeros(LENGTH, LENGTH)
    mask[2] = -math.inf

    def attend(self, q, k, v):
        return F.softmax(q @ k.mT + mask, -1) @ v

    training = Training(attend)
    put_on()
    results = [training.model(training.inputs) for _ in range(3)]

    assert all(result[:, 2].isnan().all() for result in results)
    assert calls == []


def test_a_causal_mask_is_told_to_the_kernel(put_on, calls):
    put_on()
    Training(causal).steps(2)
    Training(padded).steps(2)
    Training(added_causal).steps(2)

    assert [call["is_causal"] for call in calls] == [True, False, True]
    assert calls[0]["attn_mask"] is None
    assert calls[1]["attn_mask"].shape == (ROWS, 1, 1, LENGTH)


def test_a_mask_that_hides_a_row_later_is_computed_as_written(put_on, calls, monkeypatch):
    training = Training(padded)
    put_on()
    training.steps(2)
    twin = copy.deepcopy(training)
    monkeypatch.setitem(globals(), "PADDED", torch.ones_like(PADDED))
    with torch.no_grad():
        result = training.model(training.inputs)
        x = training.inputs.clone()
        q, k, v = (
            twin.model.block.project(x)
            .view(ROWS, LENGTH, 3, HEADS, WIDTH // HEADS)
            .permute(2, 0, 3, 1, 4)
        )
        y = padded(twin.model.block, q, k, v).transpose(1, 2).reshape(ROWS, LENGTH, WIDTH)
        expected = x + twin.model.block.merge(y)

    assert len(calls) == 1
    assert torch.equal(result, expected)


@pytest.mark.parametrize("is_training", [True, False])
def test_dropout_counts_where_it_drops(put_on, calls, is_training):
    def attend(self, q, k, v):
        return F.dropout(F.softmax(q @ k.mT, -1), 0.2, self.training) @ v

    put_on()
    training = Training(attend)
    training.model.train(is_training)
    training.steps(3)

    assert len(calls) == (0 if is_training else 2)


class Returns(nn.Module):
    """Attention that returns its weights, as many do; the caller decides what they are for."""

    def forward(self, x):
        weights = F.softmax(x @ x.mT, -1)
        return weights @ x, weights


class Caller(nn.Module):
    def __init__(self, wants_weights):
        super().__init__()
        self.inner = type("Own", (Returns,), {})()
        self.weight = nn.Parameter(torch.ones(1))
        self.wants_weights = wants_weights

    def forward(self, x):
        y, weights = self.inner(x * self.weight)
        return y + weights.mean() if self.wants_weights else y


@pytest.mark.parametrize("wants_weights", [True, False])
def test_weights_that_are_returned_are_tensors_and_the_class_is_left_alone(
    put_on, calls, wants_weights
):
    kinds = set()
    x = torch.randn(ROWS, LENGTH, WIDTH)
    model = Caller(wants_weights)
    model.inner.register_forward_hook(lambda module, args, result: kinds.add(type(result[1])))
    expected = model(x)
    put_on()
    results = [model(x) for _ in range(4)]

    for result in results:
        torch.testing.assert_close(result, expected)
    assert kinds == {torch.Tensor}
    assert len(calls) <= 1, "it was noticed in the first call that was fused"


def test_a_hook_that_keeps_weights_gets_what_computes_itself(put_on):
    training, kept = Training(causal), []
    training.model.block.drop.register_forward_hook(lambda m, args, out: kept.append(out))
    expected = Training(causal).steps(4)
    put_on()

    assert training.steps(4) == pytest.approx(expected, rel=1e-4)
    for weights in kept:
        assert weights.sum(-1).allclose(torch.ones(ROWS, HEADS, LENGTH))
    assert [type(one) for one in kept[2:]] == [torch.Tensor] * 2, "left alone from then on"


class Odd(nn.Module):
    """What else may be done to a product; `act` gets it."""

    def __init__(self):
        super().__init__()
        self.weight, self.act, self.seen = nn.Parameter(torch.ones(1)), None, None

    def forward(self, x):
        if self.act is not None:
            self.seen = self.act((x * self.weight) @ x.mT)
        return F.softmax((x * self.weight) @ x.mT, -1) @ x


ACTS = [
    lambda s: s + 1,
    lambda s: 1 - s,
    lambda s: -s,
    lambda s: s[0],
    lambda s: s[:, 1:].sum(),
    len,
    lambda s: [one.sum().item() for one in s],
    lambda s: torch.cat([s, s], dim=-1),
    lambda s: torch.stack((s, s * 2)),
    lambda s: (s.shape, s.dtype, s.device, s.ndim, s.dim(), s.size(), s.size(0), s.numel()),
    lambda s: s.requires_grad,
    lambda s: s.detach().numpy().sum(),
    lambda s: repr(s.detach()),
    str,
    lambda s: f"{s.sum():.3f}",
    lambda s: s.mT @ s,
    lambda s: s @ s,
    lambda s: s.mT.shape,
    lambda s: torch.baddbmm(s, s, s),
    lambda s: (s > 0).any().item(),
    lambda s: bool((s == s).all()),
    lambda s: torch.equal(s, s * 1.0),
    lambda s: torch.ones(1) + s,
    lambda s: torch.einsum("bij->b", s),
    lambda s: copy.deepcopy(s.detach()),
    lambda s: pickle.loads(pickle.dumps(s.detach())),
    lambda s: s.clone().fill_(3),
    lambda s: s.add_(1).mul_(2),
    lambda s: torch.zeros_like(s).add_(s),
    lambda s: s.masked_fill(s > 1, 5.0),
    lambda s: s / s.norm(),
    lambda s: F.softmax(s, -1).max(),
    lambda s: F.softmax(s / 2, -1) * 2,
    lambda s: s.to(torch.float64),
    lambda s: s.float(),
    lambda s: s * torch.tensor(2.0),
    lambda s: s * 2 ** torch.arange(1.0),
    lambda s: torch.where(s > 0, s, -1e9),
    lambda s: s.is_contiguous(),
    lambda s: s.grad_fn is not None,
]


def flat(value):
    return value.tolist() if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("act", ACTS)
def test_a_product_in_such_a_module_is_as_good_as_a_tensor(put_on, calls, act):
    torch.manual_seed(0)
    model, x = type("Own", (Odd,), {})(), torch.randn(2, 4, 4)
    put_on()
    model(x), model(x)
    expected = flat(act((x * model.weight) @ x.mT))
    model.act = act
    model(x)
    seen = model.seen

    assert len(calls) == 2
    assert flat(seen + 0 if type(seen).__name__ == "Scores" else seen) == expected


def test_scores_whose_keys_changed_raise_instead_of_being_wrong(put_on):
    def attend(self, q, k, v):
        scores = q @ (k := k.clone()).mT
        if self.kept:
            with torch.no_grad():
                k.zero_()
        return F.softmax(scores, -1) @ v

    training = Training(attend)
    put_on()
    training.steps(2)
    training.model.block.kept = True

    with pytest.raises(RuntimeError, match="changed before they were used"):
        training.steps(1)


def test_under_autocast_it_gives_what_the_scripts_operators_give(put_on, calls):
    model, x = Training(causal).model, torch.randn(ROWS, LENGTH, WIDTH)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = model(x)
        put_on()
        model(x)
        result = model(x)

    assert len(calls) == 1
    assert result.dtype == expected.dtype
    torch.testing.assert_close(result, expected, rtol=0.02, atol=0.02)


def test_a_checkpoint_computes_the_same_again(put_on, calls):
    def call(model, args):
        (x,) = args
        return x + torch.utils.checkpoint.checkpoint(model.block, x, use_reentrant=False)

    losses = []
    for is_on in (False, True):
        training = Training(causal)
        kind = type("OwnNet", (Net,), {"forward": lambda self, *args: call(self, args)})
        training.model.__class__ = kind
        if is_on:
            put_on()
        losses.append(training.steps(4))

    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert len(calls) == 6, "each of three calls, and once more in its backward"


def test_scores_without_gradients_do_not_meet_values_with_them(put_on, calls):
    def attend(self, q, k, v):
        with torch.no_grad():
            weights = F.softmax(q @ k.mT, -1)
        return weights @ v

    expected = Training(attend).steps(4)
    put_on()

    assert Training(attend).steps(4) == expected
    assert calls == []


def test_nothing_is_left_at_the_class_or_the_model(put_on):
    training = Training(causal)
    owner = type(training.model.block)
    undo = put_on()
    training.steps(2)
    assert owner.forward is not Attention.forward
    names = set(vars(training.model.block))
    state = pickle.dumps(training.model.state_dict())
    undo()

    assert "forward" not in vars(owner)
    assert names == set(vars(Training(causal).model.block))
    assert b"steptime" not in state


def test_switched_on_again_it_does_not_look_again(put_on, calls):
    training = Training(causal)
    for _ in range(3):
        undo = put_on()
        training.steps(2)
        undo()

    assert len(calls) == 5


FACTS = {"torch_version": "2.9.0"}
REASONS = [
    ({}, None),
    ({"plain_attention": ("Attention",)}, None),
    ({"plain_attention": ()}, "No attention that is written out in single operators was seen."),
    (
        {"plain_attention": (), "kept_attention": ("dropout",)},
        "Attention is written out, but its weights are dropped at random, for which this device "
        "has no fused kernel.",
    ),
    (
        {"uses_compile": True},
        "The script compiles its model, and the compiler looks for attention itself.",
    ),
    ({"device": "cuda"}, "It has not been tested on cuda."),
]


@pytest.mark.parametrize(("known", "reason"), REASONS)
def test_it_says_where_it_does_not_apply(known, reason):
    assert LEVER.applies(Facts(**FACTS, **known)) == reason
