"""The lever compile, with graphs that are made and then run as they are."""

import copy
import io

import pytest

torch = pytest.importorskip("torch")

from end_to_end.harness import has_gpu  # noqa: E402
from steptime.levers import load  # noqa: E402
from steptime.levers.base import Facts  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402
from unit.counted_graphs import CountedGraphs  # noqa: E402

LEVER = load("compile")
SETTINGS = {"mode": "default"}


@pytest.fixture
def graphs(monkeypatch):
    graphs, make = CountedGraphs(), torch.compile

    def compile_with(model, *, options=None, backend=graphs):
        return make(model, backend=backend)

    monkeypatch.setattr(torch, "compile", compile_with)
    yield graphs
    torch.compiler.reset()


@pytest.fixture
def session():
    with PlainSession(torch) as session:
        yield session


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh())
        self.head = torch.nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.body(x))


def test_training_is_compiled_and_evaluation_is_not(session, graphs):
    model, x = Net(), torch.ones(2, 4)
    LEVER.apply(SETTINGS, session)

    model(x).sum().backward()
    with torch.no_grad():
        model(x)
    model.eval()
    model(x)

    assert (graphs.num_graphs, graphs.num_calls) == (1, 1)


def test_off_it_is_eager_and_on_again_it_compiles_nothing_again(session, graphs):
    model, x = Net(), torch.ones(2, 4)
    for _ in range(3):
        undo = LEVER.apply(SETTINGS, session)
        model(x)
        undo()
        model(x)

    assert (graphs.num_graphs, graphs.num_calls) == (1, 3)


@pytest.mark.parametrize("order", [("autocast", "compile"), ("compile", "autocast")])
def test_other_levers_act_on_the_compiled_model_too(session, graphs, order):
    model, x = Net(), torch.ones(2, 4)
    expected = model(x)
    settings = {"autocast": {"dtype": "bf16"}, "compile": SETTINGS}
    for name in order:
        load(name).apply(settings[name], session)

    outputs = model(x)

    assert graphs.num_calls == 1
    assert outputs.dtype == torch.float32
    assert not torch.equal(outputs, expected)
    torch.testing.assert_close(outputs, expected, rtol=2e-2, atol=2e-2)


def test_nothing_is_put_on_the_model(session, graphs):
    model, x = Net(), torch.ones(2, 4)
    before = {name: sorted(vars(part)) for name, part in model.named_modules()}
    LEVER.apply(SETTINGS, session)
    model(x).sum().backward()
    file = io.BytesIO()
    torch.save(model, file)
    copied = copy.deepcopy(model)

    assert {name: sorted(vars(part)) for name, part in model.named_modules()} == before
    assert all(vars(one) == {} for one in model.parameters())
    assert b"_is_torch_compile" not in file.getvalue()
    assert b"steptime" not in file.getvalue()
    assert list(copied.state_dict()) == ["body.0.weight", "body.0.bias", "head.weight", "head.bias"]


def test_what_is_compiled_or_scripted_already_is_left_alone(session, graphs):
    x = torch.ones(2, 4)
    in_place = Net()
    in_place.compile(backend="eager")
    LEVER.apply(SETTINGS, session)

    in_place(x)

    assert graphs.num_graphs == 0


def test_many_models_are_not_kept_for_ever(session, graphs):
    table = LEVER.apply.__globals__["kept_forms"]
    LEVER.apply(SETTINGS, session)
    for _ in range(20):
        Net()(torch.ones(2, 4))

    assert len(table) <= 8


@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(), reason="no CUDA device")
@pytest.mark.parametrize("mode", ["default", "cudagraphs", "reduce-overhead", "max-autotune"])
def test_on_a_device_each_mode_trains_as_without(session, mode):
    x = torch.randn(8, 4, device="cuda")

    def losses():
        torch.manual_seed(0)
        model = Net().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        found = []
        for _ in range(6):
            optimizer.zero_grad()
            loss = model(x).pow(2).sum()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    expected = losses()
    LEVER.apply({"mode": mode}, session)

    assert losses() == pytest.approx(expected, rel=1e-3)


# -- where it applies


def test_without_a_compiler_for_cpp_it_is_not_offered(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)

    assert "g++ was not found" in LEVER.applies(Facts(torch_version="2.9"))


def test_a_compiler_that_the_user_names_is_the_one_that_counts(monkeypatch, tmp_path):
    compiler = tmp_path / "my-cpp"
    compiler.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "my-cpp -O2")

    assert LEVER.applies(Facts(torch_version="2.9")) is None


def test_a_script_that_compiles_is_left_to_it():
    assert "itself" in LEVER.applies(Facts(torch_version="2.9", uses_compile=True))


def test_cuda_graphs_are_for_cuda_alone():
    space = {d: LEVER.space(Facts(torch_version="2.9", device=d)) for d in ("cpu", "cuda")}

    assert [s["mode"] for s in space["cpu"]] == ["default"]
    assert [s["mode"] for s in space["cuda"]] == [
        *("default", "cudagraphs", "reduce-overhead", "max-autotune"),
    ]


@pytest.mark.parametrize("mode", ["default", "cudagraphs", "reduce-overhead", "max-autotune"])
def test_torch_knows_what_it_is_given(session, monkeypatch, mode):
    """Each option is one of the compiler's, and each backend is registered."""
    from torch._dynamo import list_backends
    from torch._inductor import list_options

    given = {}
    monkeypatch.setattr(torch, "compile", lambda model, **ways: given.update(ways) or model)
    LEVER.apply({"mode": mode}, session)
    Net()(torch.ones(2, 4))

    assert set(given.get("options", {})) <= set(list_options())
    assert given.get("backend", "inductor") in [*list_backends(exclude_tags=()), "inductor"]
