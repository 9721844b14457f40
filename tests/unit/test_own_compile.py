"""The levers on a script's own torch.compile: run eagerly, and graphs for all sizes."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from steptime.levers import load  # noqa: E402
from steptime.levers.base import Facts, Preserves  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402
from unit.counted_graphs import CountedGraphs  # noqa: E402

EAGER, DYNAMIC = load("no_compile"), load("dynamic_shapes")
COMPILES = Facts(torch_version="2.13.0+cpu", uses_compile=True, draws_in_calls=False)


@pytest.fixture
def graphs() -> Any:
    yield CountedGraphs()
    torch.compiler.reset()


@pytest.fixture
def session() -> Any:
    with PlainSession(torch) as session:
        yield session


def make_model() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def losses_of(model: Any, lengths: Any) -> list[float]:
    return [model(torch.ones(length, 4)).sum().item() for length in lengths]


# -- without


def test_nothing_is_compiled_or_run_compiled(session: Any, graphs: Any) -> None:
    """The specimen that it helps: each size would be a graph, and all after the eighth eager."""
    model = torch.compile(make_model(), backend=graphs, dynamic=False)
    undo = EAGER.apply({}, session)
    found = losses_of(model, range(2, 6))
    undo()

    assert graphs.num_graphs == 0
    assert found == losses_of(make_model(), range(2, 6))


def test_taken_off_the_graphs_are_there_again(session: Any, graphs: Any) -> None:
    model = torch.compile(make_model(), backend=graphs)
    for _ in range(3):
        losses_of(model, [4])
        undo = EAGER.apply({}, session)
        losses_of(model, [4])
        undo()

    assert (graphs.num_graphs, graphs.num_calls) == (1, 3)


def test_a_stance_of_the_script_comes_back(session: Any, graphs: Any) -> None:
    model = torch.compile(make_model(), backend="eager")
    with torch.compiler.set_stance(force_backend=graphs):
        EAGER.apply({}, session)()
        losses_of(model, [4])

    assert graphs.num_calls == 1


def test_what_is_compiled_in_one_graph_loses_it(session: Any, graphs: Any) -> None:
    """The specimen that it hurts: one graph of many operators, which a compiler would fuse."""
    chain = torch.compile(lambda x: x.sin().exp().tanh().cos().sigmoid().relu(), backend=graphs)
    chain(torch.ones(3))
    undo = EAGER.apply({}, session)
    chain(torch.ones(3))
    undo()

    assert (graphs.num_graphs, graphs.num_operators, graphs.num_calls) == (1, 6, 1)


# -- dynamic


def compile_sizes(graphs: Any, lengths: Any, **ways: Any) -> None:
    model = torch.compile(make_model(), backend=graphs, **ways)
    assert losses_of(model, lengths) == losses_of(make_model(), lengths)


@pytest.mark.parametrize("ways", [{"dynamic": False}, {}], ids=["refused", "not said"])
def test_sizes_that_vary_share_a_graph(session: Any, graphs: Any, ways: dict[str, Any]) -> None:
    """The specimen that it helps."""
    before = torch.compile
    undo = DYNAMIC.apply({}, session)
    compile_sizes(graphs, range(2, 14), **ways)
    undo()

    assert graphs.num_graphs == 1
    assert torch.compile is before


def test_without_it_each_size_is_compiled(graphs: Any) -> None:
    compile_sizes(graphs, range(2, 7), dynamic=False)

    assert graphs.num_graphs == 5


def test_one_size_is_compiled_for_all(session: Any, graphs: Any) -> None:
    """The specimen that it hurts: the only size is no constant of the graph any more."""
    compile_sizes(graphs, [6, 6])
    assert graphs.num_sizes == 0
    torch.compiler.reset()
    undo = DYNAMIC.apply({}, session)
    compile_sizes(graphs, [6, 6])
    undo()

    assert graphs.num_sizes > 0


def test_decorators_and_modules_that_compile_themselves_are_dynamic_too(
    session: Any, graphs: Any
) -> None:
    undo = DYNAMIC.apply({}, session)

    @torch.compile(backend=graphs, dynamic=False)
    def double(x: Any) -> Any:
        return 2 * x

    double(torch.ones(3))
    double(torch.ones(5))
    assert graphs.num_graphs == 1
    model = torch.nn.Bilinear(2, 2, 1)
    model.compile(backend=graphs, dynamic=False)
    undo()

    assert model._compiled_call_impl is not None


# -- where they apply


@pytest.mark.parametrize("lever", [EAGER, DYNAMIC], ids=["without", "dynamic"])
def test_a_script_that_does_not_compile_is_none_of_theirs(lever: Any) -> None:
    facts = Facts(torch_version="2.9", uses_compile=False)

    assert lever.applies(facts) == "The script does not use torch.compile."
    assert lever.applies(COMPILES) is None


def test_torch_without_the_switch_is_named() -> None:
    old = Facts(torch_version="2.5.1+cu124", uses_compile=True)

    assert EAGER.applies(old) == "Torch can be told so from 2.6 on, but this is 2.5.1+cu124."


@pytest.mark.parametrize(("num", "fits"), [(0, False), (1, False), (2, True), (None, True)])
def test_dynamic_shapes_are_for_what_was_compiled_again(num: int | None, *, fits: bool) -> None:
    facts = Facts(torch_version="2.9", uses_compile=True, num_recompiles=num)

    assert (DYNAMIC.applies(facts) is None) is fits


@pytest.mark.parametrize("lever", [EAGER, DYNAMIC], ids=["without", "dynamic"])
def test_with_dropout_the_draws_may_be_others(lever: Any) -> None:
    draws = Facts(torch_version="2.9", uses_compile=True, draws_in_calls=True)

    assert lever.class_here(COMPILES, {}) is Preserves.NUMERIC
    assert lever.class_here(draws, {}) is None
    assert lever.preserves is Preserves.STATISTICAL
