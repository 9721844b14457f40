"""Whether fp32 is multiplied as TF32 on a GPU that is not there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from steptime.guest.count.operators.fp32_precision import is_tf32

GPU, CPU = SimpleNamespace(type="cuda"), SimpleNamespace(type="cpu")


def make_torch(*, capability: int = 9, hip: str | None = None, **words: Any) -> Any:
    """Torch with a word for each part (`conv`, `rnn`, `matmul`), as it is by default."""
    words = {"conv": "tf32", "rnn": "tf32", "matmul": "none"} | words
    parts = {name: SimpleNamespace(fp32_precision=word) for name, word in words.items()}
    return SimpleNamespace(
        version=SimpleNamespace(hip=hip),
        cuda=SimpleNamespace(get_device_capability=lambda device: (capability, 0)),
        backends=SimpleNamespace(
            cudnn=SimpleNamespace(conv=parts["conv"], rnn=parts["rnn"]),
            cuda=SimpleNamespace(matmul=parts["matmul"]),
        ),
    )


def make_old_torch(*, cudnn: bool, matmul: bool) -> Any:
    torch = make_torch()
    torch.backends.cudnn = SimpleNamespace(allow_tf32=cudnn)
    torch.backends.cuda.matmul = SimpleNamespace(allow_tf32=matmul)
    return torch


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("convolution", True), ("recurrent", True), ("matmul", False), ("attention", False)],
)
def test_by_default_convolutions_run_as_tf32_and_products_do_not(
    kind: str,
    expected: bool,  # noqa: FBT001
) -> None:
    assert is_tf32(make_torch(), kind, GPU) is expected
    assert is_tf32(make_old_torch(cudnn=True, matmul=False), kind, GPU) is expected


def test_each_part_has_its_own_switch() -> None:
    assert is_tf32(make_torch(matmul="tf32"), "matmul", GPU)
    assert not is_tf32(make_torch(conv="ieee"), "convolution", GPU)
    assert is_tf32(make_old_torch(cudnn=False, matmul=True), "matmul", GPU)
    assert not is_tf32(make_old_torch(cudnn=False, matmul=True), "convolution", GPU)


def test_devices_without_tf32_and_other_vendors_multiply_fp32_as_such() -> None:
    assert not is_tf32(make_torch(capability=7), "convolution", GPU)
    assert not is_tf32(make_torch(hip="6.2"), "convolution", GPU)
    assert not is_tf32(make_torch(), "convolution", CPU)
