"""The options that ask for a profiler, and the bare names of kernels."""

from __future__ import annotations

import pytest

from steptime.cli import main
from steptime.measure.values.model.profiled import function_of


@pytest.mark.parametrize(
    ("kernel", "function"),
    [
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::F<float>>(int, F)",
         "vectorized_elementwise_kernel"),
        ("void at::native::(anonymous namespace)::softmax_warp_forward<float, 8>(float*, int)",
         "softmax_warp_forward"),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, A<B<1>>>(X)", "kernel"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
         "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
    ],
)  # fmt: skip
def test_a_kernels_function_is_its_bare_name(kernel: str, function: str) -> None:
    assert function_of(kernel) == function


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--profile", "0"], "--profile takes a step number of 1 or more, got 0"),
        (["--nsys", "-3"], "--nsys takes a step number of 1 or more, got -3"),
        (["--profile-stacks"], "--profile-stacks needs --profile"),
        (["--profile", "--nsys"], "only one profiler can run at a time"),
        (["--profile", "soon"], "must be a whole number, got `soon`"),
    ],
)
def test_what_cannot_be_meant_is_said_before_anything_starts(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["run", *words, "--", "false"]) == 2
    assert said in capsys.readouterr().err


def test_a_tool_that_is_not_installed_is_one_error_with_what_brings_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steptime.launch.user_command.user_environment", lambda: {"PATH": "/bin"})

    assert main.main(["run", "--nsys", "--", "true"]) == 2
    said = capsys.readouterr().err
    assert "--nsys needs `nsys`, which is not on PATH" in said
    assert "nsight-systems-cli" in said
