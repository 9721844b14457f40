"""The lever on the precision of matrix products: torch's switches, and where it is offered."""

import dataclasses

import pytest

torch = pytest.importorskip("torch")

from steptime.levers import load  # noqa: E402
from steptime.levers.base import Facts  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402
from steptime.testing.levers import global_settings  # noqa: E402

LEVER = load("matmul_precision")
CPU = Facts(torch_version="2.9", capabilities=("amx_bf16",), parameter_dtypes=("float32",))


@pytest.fixture
def precision():
    """The switch, put back in the end."""
    before = global_settings(torch)
    yield torch.set_float32_matmul_precision
    torch.set_float32_matmul_precision("highest")
    for owner, value in zip(
        (torch.backends.mkldnn, torch.backends.cuda), before["operators"], strict=True
    ):
        if value is not None:
            owner.matmul.fp32_precision = value


@pytest.mark.parametrize("old", ["highest", "high", "medium"])
def test_it_is_set_and_all_is_as_before_when_it_is_taken_back(precision, old):
    precision(old)
    before = global_settings(torch)

    undo = LEVER.apply({"precision": "medium"}, PlainSession(torch))
    while_on = torch.get_float32_matmul_precision()
    undo()

    assert while_on == "medium"
    assert global_settings(torch) == before


@pytest.mark.skipif(
    not hasattr(getattr(torch.backends.mkldnn, "matmul", None), "fp32_precision"),
    reason="torch before 2.9 has no switch an operator",
)
def test_a_script_that_uses_the_switches_of_an_operator_gets_them_back(precision):
    torch.backends.mkldnn.matmul.fp32_precision = "ieee"
    torch.backends.cuda.matmul.fp32_precision = "tf32"  # torch refuses to read the old one now

    LEVER.apply({"precision": "medium"}, PlainSession(torch))()

    assert torch.backends.mkldnn.matmul.fp32_precision == "ieee"
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"


@pytest.mark.parametrize(
    ("change", "settings"),
    [
        ({}, ["medium"]),
        ({"capabilities": ("avx512_bf16",), "matmul_precision": "highest"}, ["medium"]),
        ({"capabilities": ("avx2",)}, []),
        ({"matmul_precision": "high"}, []),
        ({"uses_autocast": True}, []),
        ({"parameter_dtypes": ("bfloat16",)}, []),
        ({"device": "cuda", "capabilities": ("sm_80",)}, ["high"]),
        ({"device": "cuda", "capabilities": ("sm_75",)}, []),
        ({"device": "mps"}, []),
    ],
)
def test_it_is_offered_where_the_hardware_has_faster_products(change, settings):
    facts = dataclasses.replace(CPU, **change)

    offered = LEVER.applies(facts) is None

    assert offered == bool(settings)
    if offered:
        assert [one["precision"] for one in LEVER.space(facts)] == settings
