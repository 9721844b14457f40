"""A few elements of tensors: which ones, when they arrive, and of which tensors none are asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from steptime.guest.sense.few_elements import Elements, ask_elements  # noqa: E402
from steptime.guest.sense.replicas import Replicas  # noqa: E402


def taken(*tensors: Any, num: int = 4) -> list[float] | None:
    found = ask_elements(torch, list(tensors), num)
    return None if found is None else found.take()


def test_elements_are_taken_at_an_even_stride_from_each_tensor() -> None:
    weight = torch.nn.Parameter(torch.arange(20.0).view(4, 5))
    scattered = torch.arange(6).view(2, 3).t()

    assert taken(weight) == [0.0, 5.0, 10.0, 15.0]
    assert taken(torch.tensor(7), weight, num=2) == [7.0, 0.0, 10.0]
    assert taken(scattered) == [0.0, 3.0]
    assert taken(torch.ones(3, dtype=torch.bfloat16), torch.ones(0)) == [1.0, 1.0, 1.0]
    assert weight.grad is None


@pytest.mark.parametrize(
    "tensor",
    [
        torch.eye(3).to_sparse(),
        torch.ones(3, dtype=torch.complex64),
        torch.ones(3, device="meta"),
        torch.ones(3).as_subclass(type("Own", (torch.Tensor,), {})),
    ],
)
def test_tensors_of_another_kind_are_not_read(tensor: Any) -> None:
    assert taken(tensor) is None
    assert taken(torch.ones(2), tensor) is None
    assert taken() is None


def test_inside_a_transform_of_functions_nothing_is_read() -> None:
    seen = []
    torch.func.vmap(lambda x: (seen.append(taken(torch.ones(2))), x)[1])(torch.ones(3))

    assert seen == [None]


def test_a_line_waits_until_the_device_has_passed_its_numbers() -> None:
    has_passed = [False, False, True, True]
    memory, event = torch.ones(2).double(), SimpleNamespace(query=lambda: has_passed.pop(0))
    replicas = Replicas(torch)
    replicas.models.append(lambda: None)
    late = Elements(memory, event)
    replicas.pending.append(({"n": 1}, late, None))

    assert replicas.poll() == replicas.poll() == ""
    assert replicas.poll() == '{"k": "rp", "n": 1, "values": [1.0, 1.0], "written": false}\n'
    replicas.pending.append(({"n": 2}, late, Elements(memory + 1, None)))
    assert '"written": true' in replicas.poll()
    assert replicas.poll() == ""
