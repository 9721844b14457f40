"""The lever cudnn_benchmark: torch's switch, and where it is turned."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from end_to_end.harness import has_gpu  # noqa: E402
from steptime.levers import load  # noqa: E402
from steptime.levers.base import Facts  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402

LEVER = load("cudnn_benchmark")


@pytest.mark.parametrize("before", [False, True])
def test_the_switch_is_on_and_goes_back(monkeypatch: pytest.MonkeyPatch, *, before: bool) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", before)
    with PlainSession(torch) as session:
        undo = LEVER.apply({}, session)
        assert torch.backends.cudnn.benchmark
        undo()

    assert torch.backends.cudnn.benchmark is before


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"device": "cpu"}, "is on cpu"),
        ({"device": "cuda", "uses_cudnn_benchmark": True}, "already"),
        ({"device": "cuda", "has_convolution": False}, "convolves no images"),
    ],
)
def test_where_it_does_not_apply_it_says_why(facts: dict[str, Any], words: str) -> None:
    assert words in LEVER.applies(Facts(torch_version="2.9", **facts))


def test_images_on_a_device_are_its_case() -> None:
    assert LEVER.applies(Facts(torch_version="2.9", device="cuda", has_convolution=True)) is None


@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(), reason="no CUDA device")
def test_on_a_device_the_convolution_is_the_same_but_for_rounding() -> None:
    convolution = torch.nn.Conv2d(16, 32, 3, padding=1).cuda()
    images = torch.randn(8, 16, 32, 32, device="cuda")
    expected = convolution(images)
    with PlainSession(torch) as session:
        undo = LEVER.apply({}, session)
        found = convolution(images)
        undo()

    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
