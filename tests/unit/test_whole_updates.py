"""Whole updates in an extra run: tensors that run their operators themselves end the count."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from steptime.guest.count.operators import operator_probe  # noqa: E402
from steptime.guest.count.operators.operator_probe import OperatorProbe  # noqa: E402
from steptime.guest.count.whole_updates import COUNT_AT, WholeUpdates  # noqa: E402
from steptime.record.buckets import OTHER  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # prototypes of torch's say that they are


def train(num_updates: int, *, is_jagged: bool) -> list[dict[str, Any]]:
    """Make updates as the hooks would tell of them; return the lines."""
    layer = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    failures: list[str] = []
    known = {0: (0, lambda: optimizer)}
    recorder: Any = SimpleNamespace(optimizers=known, num_optimizers=1, fail=failures.append)
    sizes = [6, 24, 96, 1, 0, 20, 24]
    journal: Any = SimpleNamespace(top=OTHER, set_trained=lambda _: sizes)
    plan = WholeUpdates(torch, recorder)
    for _ in range(num_updates):
        x = torch.randn(6, 4)
        if is_jagged:
            x = torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 2, 6]))
        out = layer(x)
        (out.values() if is_jagged else out).sum().backward()
        optimizer.step()
        plan.end_update(journal, 0, sizes)
    assert not failures
    assert torch._C._len_torch_dispatch_stack() == 0
    return [json.loads(line) for line in plan.pop_lines()]


def test_plain_updates_are_counted_until_they_repeat() -> None:
    lines = train(COUNT_AT + 6, is_jagged=False)

    assert [one["k"] for one in lines] == ["count"] * 4 + ["counted"]
    assert all(one["forward"] == 2 * 6 * 4 * 4 for one in lines[:-1])


def test_jagged_tensors_end_the_count_with_a_reason_and_the_training_goes_on() -> None:
    lines = train(COUNT_AT + 6, is_jagged=True)

    assert [one.get("missing") for one in lines] == [None, "child_subclass", None]
    assert lines[-1]["k"] == "counted"


def test_in_a_run_a_jagged_tensor_that_the_model_makes_leaves_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operator_probe, "COMPILERS", ())  # other tests compile
    probe = OperatorProbe(torch, fail=pytest.fail)
    layer, x = nn.Linear(4, 4), torch.randn(6, 4)

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            nested = torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 2, 6]))
            out: torch.Tensor = layer(nested).values()
            return out

    model = Model()
    expected = model(x)

    probe.begin(is_scouting=False)
    out = probe.run(lambda: None, nn.Module.__call__, (model, x), {}, is_call=True)

    assert torch.equal(out, expected)
    assert probe.take()[1] == "subclass"
    assert torch._C._len_torch_dispatch_stack() == 0
