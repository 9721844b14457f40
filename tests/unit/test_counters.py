"""The commands for counters of the hardware: exact words, taken from what was profiled."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from report_cases import healthy, make_operator, profiled
from steptime.cli import main
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.profiled import function_of
from steptime.report.text.counter_text import kernel_counters, processor_counters


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


def with_kernels(*names: str) -> Measurement:
    """216 launches of each in three steps, the first the busiest."""
    m = profiled()
    assert m.profile is not None
    rank = m.profile.ranks[0]
    kernels = tuple(
        make_operator(name, "matmul", 0.01 / (i + 1), 216, num_alike=240)
        for i, name in enumerate(names)
    )
    device = replace(rank.devices[0], kernels=kernels)
    return replace(m, profile=replace(m.profile, ranks=(replace(rank, devices=(device,)),)))


def test_ncu_skips_the_launches_before_the_profiled_step() -> None:
    found = kernel_counters(with_kernels("void gemm<1>(int)", "other"), "")

    assert shlex.join(found.argv) == (
        "ncu --target-processes all --kernel-name-base function --kernel-name gemm "
        "--launch-skip 2400 --launch-count 1 --set full --export ncu-gemm python train.py --lr 3e-4"
    )
    assert "one launch of gemm, about 80 per step, in step 30" in found.about


def test_ncu_looks_at_the_kernel_that_was_named() -> None:
    found = kernel_counters(with_kernels("gemm", "softmax_forward"), "softmax")

    assert found.argv[found.argv.index("--kernel-name") + 1] == "softmax_forward"


def test_the_busiest_kernel_is_one_that_computes() -> None:
    m = profiled()
    assert m.profile is not None
    rank = m.profile.ranks[0]
    nccl = make_operator("ncclDevKernel", "communication", 0.5, 3)
    kernels = (nccl, *rank.devices[0].kernels)
    device = replace(rank.devices[0], kernels=kernels)
    m = replace(m, profile=replace(m.profile, ranks=(replace(rank, devices=(device,)),)))

    assert "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTN" in kernel_counters(m, "").argv


def test_a_kernel_that_is_not_among_the_busiest_is_told_with_those_that_are() -> None:
    found = kernel_counters(with_kernels("gemm", "softmax_forward"), "conv")

    assert found.argv == ()
    assert found.missing is not None
    assert "`conv`" in found.missing
    assert "gemm, softmax_forward" in found.missing


def test_perf_waits_for_the_profiled_step_and_looks_for_a_second_at_least() -> None:
    found = processor_counters(profiled())

    assert shlex.join(found.argv) == (
        "perf stat -d -D 8400 --timeout 1000 python train.py --lr 3e-4"
    )
    assert "about step 30" in found.about


def test_without_a_profile_there_is_no_command() -> None:
    for found in (kernel_counters(healthy(), ""), processor_counters(healthy())):
        assert found.argv == ()
        assert found.missing is not None


def test_without_a_device_there_is_no_kernel_to_look_at() -> None:
    m = profiled()
    assert m.profile is not None
    rank = replace(m.profile.ranks[0], devices=())
    m = replace(m, profile=replace(m.profile, ranks=(rank,)))

    assert kernel_counters(m, "").missing == "no kernel ran on a device"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--profile", "0"], "--profile takes a step number of 1 or more, got 0"),
        (["--nsys", "-3"], "--nsys takes a step number of 1 or more, got -3"),
        (["--profile-stacks"], "--profile-stacks needs --profile"),
        (["--profile", "--nsys"], "only one profiler can run at a time"),
        (["--nsys", "--perf"], "only one profiler can run at a time"),
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
