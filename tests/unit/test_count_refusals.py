"""What `steptime.count` refuses, why, and what it says to do; and that nothing has changed then."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import steptime  # noqa: E402
from steptime.errors import UsageError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # prototypes of torch's say that they are

JAGGED = """
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as attend
import steptime

layer = nn.Linear(8, 8)
packed, ends = torch.randn(8, 8), torch.tensor([0, 3, 8])
nested = torch.nested.nested_tensor([packed[:3], packed[3:]], layout=torch.jagged)

def attention(x):
    heads = layer(x).unflatten(-1, [2, 4]).transpose(1, 2)
    return attend(heads, heads, heads).transpose(1, 2).flatten(-2)

def inside(x):
    return attention(torch.nested.nested_tensor_from_jagged(x, ends)).values().sum()

before = inside(packed)
before.backward()
gradient = layer.weight.grad.clone()
for call, inputs in ((layer, (nested,)), (attention, (nested,)), (lambda: attention(nested), ()),
                     (inside, (packed,))):
    try:
        steptime.count(call, *inputs)
    except steptime.SteptimeError as error:
        print(str(error))
    layer.weight.grad = None
    inside(packed).backward()
    assert torch.equal(layer.weight.grad, gradient)
    assert torch.equal(inside(packed), before)
    assert layer(nested).shape[-1] == 8
"""


def test_jagged_tensors_are_refused_and_the_model_works_as_before() -> None:
    # In a process of its own: torch ends it where a shape is asked for under a wrong mode.
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", JAGGED], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert len(told) == 4
    assert all("jagged layout" in line and "layout=torch.strided" in line for line in told)


def subclasses() -> dict[str, Any]:
    from torch.masked import masked_tensor
    from torch.testing._internal.two_tensor import TwoTensor

    return {
        "TwoTensor": TwoTensor(torch.randn(4, 4), torch.randn(4, 4)),
        "MaskedTensor": masked_tensor(torch.randn(4, 4), torch.ones(4, 4, dtype=torch.bool)),
    }


@pytest.mark.parametrize("name", ["TwoTensor", "MaskedTensor"])
def test_a_subclass_with_its_own_dispatch_is_refused_by_its_name(name: str) -> None:
    tensor, layer = subclasses()[name], nn.Linear(4, 2)

    with pytest.raises(UsageError, match=f"an input is a {name}, .* Count the model with plain"):
        steptime.count(layer, tensor)
    with pytest.raises(UsageError, match=f"what the model makes of its inputs is a {name}"):
        steptime.count(lambda: (tensor + 1, layer(torch.randn(2, 4)))[1])
    assert torch._C._len_torch_dispatch_stack() == 0


def test_a_weight_of_such_a_subclass_is_named_with_its_module() -> None:
    layer = nn.Linear(4, 4, bias=False)
    layer.weight = nn.Parameter(subclasses()["TwoTensor"])

    with pytest.raises(UsageError, match="the parameter `weight` of a Linear is a TwoTensor"):
        steptime.count(nn.Sequential(layer), torch.randn(2, 4))


@pytest.mark.parametrize("is_hidden", [False, True])
def test_a_lazy_module_is_refused_and_stays_lazy(is_hidden: bool) -> None:  # noqa: FBT001
    layer = nn.LazyLinear(4)
    holder = {"made": lambda: layer}

    with pytest.raises(UsageError, match=r"`weight` of a LazyLinear has no shape.* Call the model"):
        steptime.count(lambda x: holder["made"]()(x) if is_hidden else layer(x), torch.randn(2, 3))

    assert isinstance(layer, nn.LazyLinear)
    assert layer.has_uninitialized_params()
    assert layer(torch.randn(2, 3)).shape == (2, 4)


def test_an_opaque_layout_is_refused() -> None:
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this torch has no oneDNN")

    with pytest.raises(UsageError, match=r"has the layout torch\._mkldnn"):
        steptime.count(torch.relu, torch.randn(4, 4).to_mkldnn())


def test_inside_a_transform_it_says_to_go_outside() -> None:
    layer = nn.Linear(4, 2)

    with pytest.raises(UsageError, match=r"inside torch\.func .* call it outside"):
        torch.vmap(lambda x: (steptime.count(layer, x), x)[1])(torch.randn(3, 4))
    with pytest.raises(UsageError, match="a function that torch compiles or traces"):
        torch.jit.trace(lambda x: (steptime.count(layer, x), x)[1], torch.randn(3, 4))


def test_an_output_that_lost_its_gradients_is_not_counted_without_its_backward() -> None:
    layer, x = nn.Linear(4, 2), torch.randn(3, 4)

    with pytest.raises(UsageError, match=r"nothing that the model returned has gradients"):
        steptime.count(lambda: layer(x).sum().item())
    with torch.no_grad():
        assert steptime.count(lambda: layer(x).sum().item()).total == 2 * 3 * 4 * 2
