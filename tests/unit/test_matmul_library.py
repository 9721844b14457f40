"""Matmuls by oneDNN: the same results in forward and backward, and torch's own ones afterwards."""

from __future__ import annotations

import ast
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from steptime.levers.base import Facts  # noqa: E402
from steptime.levers.matmuls.matmul_library import LEVER, edit  # noqa: E402

pytestmark = pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="this torch has no oneDNN"
)
AMD = Facts(torch_version="2.13.0", capabilities=("authenticamd",))


def results(rows: int, width: int, columns: int) -> list[Any]:
    """Of a layer with a bias and one without, in each layout, and all gradients."""
    torch.manual_seed(0)
    x = torch.randn(rows, width, requires_grad=True)
    layers = [torch.nn.Linear(width, columns), torch.nn.Linear(width, columns, bias=False)]
    turned = torch.randn(columns, width).t().requires_grad_()
    made = [*(layer(x) for layer in layers), x @ turned, x.t().contiguous().t() @ turned]
    torch.stack(made).sum().backward()  # its gradient is one number that is spread
    leaves = [x, turned, *(p for layer in layers for p in layer.parameters())]
    return [*(one.detach() for one in made), *(leaf.grad for leaf in leaves)]


@pytest.mark.parametrize("shape", [(64, 256, 128), (3, 5, 4), (1, 2048, 1024), (2000, 1, 1000)])
def test_results_and_gradients_are_the_same_but_for_rounding(shape: tuple[int, int, int]) -> None:
    before = results(*shape)
    undo = LEVER.apply({}, SimpleNamespace(torch=torch))
    try:
        during = results(*shape)
    finally:
        undo()
    after = results(*shape)

    for own, ours, again in zip(before, during, after, strict=True):
        torch.testing.assert_close(ours, own, rtol=1e-4, atol=1e-4)
        assert torch.equal(again, own)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (torch.ones(2, 3), torch.ones(4, 5)),
        (torch.ones(2000, 3000), torch.ones(2000, 5)),
        (torch.ones(3), torch.ones(3, 2)),
        (torch.ones(2, 3), torch.ones(3, 2, dtype=torch.float64)),
    ],
)
def test_what_torch_refuses_is_refused_with_its_own_words(a: Any, b: Any) -> None:
    with pytest.raises(RuntimeError) as own:
        torch.mm(a, b)
    undo = LEVER.apply({}, SimpleNamespace(torch=torch))
    try:
        with pytest.raises(RuntimeError) as ours:
            torch.mm(a, b)
    finally:
        undo()

    assert str(ours.value) == str(own.value)


def test_other_types_factors_and_sums_are_torchs_own() -> None:
    a, b = torch.randn(256, 256), torch.randn(256, 256)
    whole = torch.randint(0, 9, (300, 300))
    own = [torch.addmm(a, a, b, beta=0.5, alpha=2.0), a.double() @ b.double(), whole @ whole]
    undo = LEVER.apply({}, SimpleNamespace(torch=torch))
    try:
        ours = [torch.addmm(a, a, b, beta=0.5, alpha=2.0), a.double() @ b.double(), whole @ whole]
    finally:
        undo()

    assert all(map(torch.equal, own, ours))


def test_the_lines_for_a_script_do_it() -> None:
    names: dict[str, Any] = {"torch": torch}
    before = results(64, 256, 128)
    exec(compile(ast.parse(edit({})), "script", "exec"), names)
    try:
        during = results(64, 256, 128)
    finally:
        names["library"]._destroy()

    for own, ours in zip(before, during, strict=True):
        torch.testing.assert_close(ours, own, rtol=1e-4, atol=1e-4)
    assert "Any" not in edit({})


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({}, None),
        ({"device": "cuda"}, "cuda"),
        ({"capabilities": ("genuineintel",)}, "AMD"),
        ({"uses_autocast": True}, "autocast"),
        ({"parameter_dtypes": ("bfloat16",)}, "bfloat16"),
    ],
)
def test_it_applies_to_float32_on_an_amd_processor(
    change: dict[str, Any], word: str | None
) -> None:
    reason = LEVER.applies(replace(AMD, **change))

    assert (reason is None) if word is None else word in str(reason)
