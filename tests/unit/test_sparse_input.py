"""The lever sparse_input: what it multiplies by what is not zero, what it leaves, and undoing."""

import copy
import pickle

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from steptime.guest.trial.looks.input_look import InputLook  # noqa: E402
from steptime.levers import load  # noqa: E402
from steptime.levers.base import Facts  # noqa: E402
from steptime.levers.kernels.sparse_input import known_of  # noqa: E402
from steptime.levers.kernels.zero_rows import MAX_KNOWN, KnownMatrices, zero_rows_of  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402

LEVER = load("sparse_input")
ROWS, COLUMNS = 200, 400
ZeroRows = zero_rows_of(torch)


def bag(zeros=0.98, *, rows=ROWS, columns=COLUMNS, seed=1):
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(rows, columns, generator=generator)
    return numbers * (torch.rand(rows, columns, generator=generator) >= zeros)


@pytest.fixture
def put_on():
    undos = []
    known_of.cache_clear()
    with PlainSession(torch) as session:

        def put():
            undos.append(LEVER.apply({}, session))
            return undos[-1]

        yield put
        for undo in undos:
            undo()


@pytest.fixture
def products(monkeypatch):
    """The products by what is not zero."""
    found = []
    original = F.embedding_bag

    def embedding_bag(index, weight, *args, **kwargs):
        found.append(tuple(weight.shape))
        return original(index, weight, *args, **kwargs)

    monkeypatch.setattr(F, "embedding_bag", embedding_bag)
    return found


def held_rows(matrix):
    known = KnownMatrices(torch)
    assert known.held(matrix) is None
    return ZeroRows(known.held(matrix))


def close(one, other, tolerance=1e-5):
    return torch.allclose(one.float(), other.float(), rtol=tolerance, atol=tolerance)


class Net(nn.Module):
    def __init__(self, *, bias=True, drop=0.0):
        super().__init__()
        self.first, self.second = nn.Linear(COLUMNS, 16, bias=bias), nn.Linear(16, 4)
        self.drop = nn.Dropout(drop) if drop else nn.Identity()

    def forward(self, x):
        return self.second(self.first(self.drop(x)).relu())


def train(model, x, steps=4):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    labels = torch.arange(len(x)) % 4
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("bias", [True, False])
def test_a_training_on_a_bag_of_words_goes_as_before(put_on, products, *, bias):
    torch.manual_seed(0)
    model, x = Net(bias=bias), bag()
    other = copy.deepcopy(model)
    expected = train(other, x)
    put_on()
    losses = train(model, x)

    assert losses == pytest.approx(expected, rel=1e-5)
    assert close(model.first.weight, other.first.weight)
    assert model.first.weight.grad.is_contiguous()
    assert products == [(COLUMNS, 16), (ROWS, 16)] * 3  # the first step only looks


def test_a_dropout_draws_from_what_is_not_zero(put_on, products):
    model, x = Net(drop=0.5), bag()
    put_on()
    train(model, x, steps=2)
    kept = [F.dropout(x, 0.5) for _ in range(50)]

    assert all(type(one) is ZeroRows for one in kept)
    assert len(products) == 2
    mean = torch.stack([one.whole() for one in kept]).mean(0)
    assert ((mean != 0) <= (x != 0)).all()
    assert close(mean.sum(), x.sum(), 0.3)
    values = kept[0].whole()[x != 0] / x[x != 0]
    assert set(values.tolist()) == {0.0, 2.0}
    assert not torch.equal(kept[0].whole(), kept[1].whole())


def test_an_evaluation_reads_it_so_too(put_on, products):
    model, x = Net(drop=0.5).eval(), bag()
    expected = model(x)
    put_on()
    with torch.no_grad():
        found = [model(x) for _ in range(3)]

    assert all(close(one, expected) for one in found)
    assert len(products) == 2


WAYS = {
    "linear": lambda x, w: F.linear(x, weight=w),
    "mm": lambda x, w: torch.mm(x, w.t()),
    "matmul": lambda x, w: torch.matmul(x, w.t()),
    "method mm": lambda x, w: x.mm(w.t()),
    "method matmul": lambda x, w: x.matmul(w.t()),
    "operator": lambda x, w: x @ w.t(),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_write_a_product_is_met(put_on, products, way):
    x, weight = bag(), torch.randn(8, COLUMNS, requires_grad=True)
    (F.linear(x, weight) ** 2).sum().backward()
    expected, weight.grad = weight.grad, None
    put_on()
    for _ in range(3):
        weight.grad = None
        found = WAYS[way](x, weight)
        (found**2).sum().backward()

    assert type(found) is torch.Tensor
    assert close(found, F.linear(x.clone(), weight))
    assert close(weight.grad, expected, 1e-4)
    assert len(products) == 4


def test_under_autocast_results_have_its_type(put_on, products):
    model, x = Net(), bag()
    put_on()
    for _ in range(3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = model.first(x)
        found.float().sum().backward()

    assert found.dtype is torch.bfloat16
    assert close(found, F.linear(x.clone(), model.first.weight, model.first.bias), 0.05)
    assert len(products) == 4


LEFT = {
    "few zeros": lambda: bag(0.5),
    "small": lambda: bag(rows=20),
    "three dimensions": lambda: bag()[None],
    "double": lambda: bag().double(),
    "with a gradient": lambda: bag().requires_grad_(),
    "a parameter": lambda: nn.Parameter(bag(), requires_grad=False),
}


@pytest.mark.parametrize("kind", LEFT)
def test_what_is_no_matrix_of_zeros_is_left_alone(put_on, products, kind):
    x = LEFT[kind]()
    weight = torch.randn(8, COLUMNS, dtype=x.dtype, requires_grad=True)
    put_on()
    for _ in range(3):
        F.linear(x, weight).sum().backward()
        dropped = F.dropout(x)

    assert not products
    assert type(dropped) is torch.Tensor


def test_a_product_with_a_vector_and_one_into_a_place_are_left_alone(put_on, products):
    x, out = bag(), torch.empty(ROWS, 4)
    put_on()
    for _ in range(3):
        torch.mm(x, torch.ones(COLUMNS, 4), out=out)
        torch.matmul(x, torch.ones(COLUMNS))

    assert not products
    assert close(out[:, 0], x.sum(1))


def test_a_dropout_in_place_changes_the_matrix_as_before(put_on):
    x = bag()
    put_on()
    for _ in range(3):
        x.copy_(bag())
        assert F.dropout(x, 0.5, inplace=True) is x
    assert set((x[bag() != 0] / bag()[bag() != 0]).tolist()) == {0.0, 2.0}


def test_other_documents_in_each_step_are_left_alone(put_on, products):
    model, x = Net(), bag()
    put_on()
    for _ in range(5):
        train(model, x.clone(), steps=1)

    assert not products


def change_in_place(x):
    x[0] = 1.0


def change_behind(x):
    x.data[x != 0] *= 2.0


def change_by_numpy(x):
    at = int(x.view(-1).nonzero()[0])
    x.numpy().reshape(-1)[at] = 5.0


@pytest.mark.parametrize("change", [change_in_place, change_behind, change_by_numpy])
def test_a_matrix_that_changed_is_read_anew_in_the_same_step(put_on, change):
    x, weight = bag(), torch.randn(8, COLUMNS)
    put_on()
    for _ in range(3):
        F.linear(x, weight)
    change(x)

    for _ in range(3):
        assert close(F.linear(x, weight), x.clone() @ weight.t(), 1e-4)


READS = {
    "sum": lambda x: x.sum(1),
    "rows": lambda x: x[:5],
    "turned": lambda x: x.t()[:, :3],
    "added": lambda x: x + 1.0,
    "joined": lambda x: torch.cat([x, x], 1),
    "relu": lambda x: x.relu(),
    "normalized": lambda x: F.normalize(x, dim=1),
    "half": lambda x: x.bfloat16().float(),
    "numpy": lambda x: torch.from_numpy(x.numpy().copy()),
    "list": lambda x: torch.tensor(x.tolist()),
    "copied": copy.deepcopy,
    "pickled": lambda x: pickle.loads(pickle.dumps(x)),
    "multiplied by its kind": lambda x: x.t() @ x,
    "from the left": lambda x: torch.ones(3, ROWS) @ x,
    "turned from the left": lambda x: torch.ones(3, COLUMNS) @ x.t(),
    "by a vector": lambda x: x @ torch.ones(COLUMNS),
    "of a wider product": lambda x: torch.addmm(torch.ones(2), x, torch.ones(COLUMNS, 2), beta=2.0),
    "its form": lambda x: torch.tensor([*x.shape, *x.stride(), x.dim(), x.is_contiguous()]),
}


@pytest.mark.parametrize("read", READS)
def test_whatever_reads_it_finds_the_whole_matrix(read):
    x = bag()
    tolerance = 1e-2 if read == "half" else 1e-5

    assert close(READS[read](held_rows(x)), READS[read](x), tolerance)


def test_it_prints_as_the_matrix():
    x = bag().abs()
    assert repr(held_rows(x)) == repr(x)


def test_what_is_written_into_it_stays_in_it():
    x = bag()
    rows, expected = held_rows(x), x.clone()
    turned = rows.t()
    assert rows.mul_(2.0) is rows
    rows[0] = 3.0
    expected.mul_(2.0)[0] = 3.0

    assert torch.equal(rows.whole(), expected)
    assert torch.equal(turned + 0.0, expected.t())
    weight = torch.randn(COLUMNS, 4)
    assert close(rows @ weight, expected @ weight, 1e-4)
    assert torch.equal(x, bag())


def test_a_second_dropout_drops_what_the_first_one_kept(put_on):
    x = bag()
    put_on()
    F.dropout(x)
    once = F.dropout(x)
    twice = F.dropout(once)

    assert type(twice) is ZeroRows
    assert ((twice.whole() != 0) <= (once.whole() != 0)).all()


def test_taken_off_everything_is_as_it_was(put_on, products):
    before = F.linear, F.dropout, torch.mm, torch.matmul, torch.Tensor.mm, torch.Tensor.__matmul__
    own = "__matmul__" in vars(torch.Tensor)
    x, weight = bag(), torch.randn(8, COLUMNS)
    undo = put_on()
    for _ in range(3):
        F.linear(x, weight)
    num = len(products)
    undo()
    F.linear(x, weight)

    after = F.linear, F.dropout, torch.mm, torch.matmul, torch.Tensor.mm, torch.Tensor.__matmul__
    assert after == before
    assert ("__matmul__" in vars(torch.Tensor)) == own
    assert len(products) == num == 2


def test_put_on_again_it_knows_the_matrix(put_on, products):
    x, weight = bag(), torch.randn(8, COLUMNS)
    put_on()()
    undo = put_on()
    F.linear(x, weight)
    F.linear(x, weight)
    undo()
    put_on()
    F.linear(x, weight)

    assert len(products) == 2


def test_what_was_put_around_it_meanwhile_stays_and_works(put_on, products, monkeypatch):
    undo = put_on()
    inner, calls = F.linear, []

    def linear(*args, **kwargs):
        calls.append(args)
        return inner(*args, **kwargs)

    monkeypatch.setattr(F, "linear", linear)
    undo()
    x, weight = bag(), torch.randn(8, COLUMNS)
    for _ in range(3):
        F.linear(x, weight)

    assert len(calls) == 3
    assert not products


def test_what_is_known_does_not_grow():
    known = KnownMatrices(torch)
    kept = [bag(rows=200, columns=400) for _ in range(3)]
    for _ in range(2 * MAX_KNOWN):
        known.held(bag())
        for one in kept:
            known.held(one)

    assert len(known.seen) <= MAX_KNOWN


def test_in_inference_mode_first_it_trains_afterwards(put_on, products):
    model, x = Net(), bag()
    put_on()
    with torch.inference_mode():
        model(x)
        model(x)
    losses = train(model, x, steps=2)

    assert len(losses) == 2
    assert len(products) == 5


def test_a_compiled_function_is_left_alone(put_on, products):
    x, weight = bag(), torch.randn(8, COLUMNS)
    put_on()
    F.linear(x, weight)
    compiled = torch.compile(lambda a, b: F.linear(F.dropout(a, 0.0), b), backend="eager")
    found = compiled(x, weight)

    assert close(found, x @ weight.t(), 1e-4)
    torch._dynamo.reset()


# -- where it applies


class Graph:
    def __init__(self, x):
        self.x = x


@pytest.mark.parametrize("kind", ["itself", "in a list", "of a graph", "by name", "behind another"])
def test_a_trial_tells_how_much_of_an_input_is_zeros(kind):
    look, x = InputLook(torch), bag()
    args = {
        "itself": (x,),
        "in a list": ([x],),
        "of a graph": (Graph(x),),
        "by name": (),
        "behind another": (torch.ones(3), x),
    }[kind]
    look.see(args, {"x": x} if kind == "by name" else {})
    assert look.describe() == {}
    look.see(args, {"x": x} if kind == "by name" else {})

    assert look.describe()["zero_fraction"] == pytest.approx(0.98, abs=0.002)


def test_a_trial_tells_that_inputs_are_others_each_time():
    look = InputLook(torch)
    for _ in range(20):
        look.see((bag(),), {})

    assert look.describe() == {"zero_fraction": 0.0}


REASONS = [
    ({}, None),
    ({"zero_fraction": 0.95}, None),
    ({"zero_fraction": 0.9}, "Models are not called with one and the same matrix in each step that "
     "is at least 95% zeros."),
    ({"uses_compile": True}, "The script compiles its model, and compiled code multiplies the "
     "whole matrix."),
    ({"device": "cuda"}, "It has not been tested on cuda."),
]  # fmt: skip


@pytest.mark.parametrize(("known", "reason"), REASONS)
def test_it_says_where_it_does_not_apply(known, reason):
    assert LEVER.applies(Facts(torch_version="2.9.0", **known)) == reason
