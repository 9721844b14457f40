"""Planted traces with known operators, gaps and overlaps are folded to exact numbers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from planted_traces import BACKWARD, COMMUNICATE, EXCHANGE, Planted, shapes
from steptime.measure.profile import profile_trace
from steptime.measure.profile.convolution_algorithms import ALGORITHMS, convolution_algorithm
from steptime.measure.profile.operator_classes import class_of_kernel, class_of_operator
from steptime.measure.profile.profile_device import fold_devices
from steptime.measure.profile.profile_host import fold_host
from steptime.measure.profile.profile_trace import TooLargeError, collect
from steptime.measure.profile.time_layers import layered, merged, outside, without
from steptime.measure.profile.trace_file import DamagedTraceError, compress, read_events
from steptime.measure.values.model.profiled import CLASSES, DeviceProfile, HostProfile

US = 1e-6


def host_of(planted: Planted, *, num_steps: int = 1, users: str = "") -> HostProfile:
    trace = collect(planted.events, num_steps=num_steps)
    assert trace is not None
    return fold_host(trace, is_users=lambda file: file == users)[0]


def devices_of(planted: Planted) -> tuple[DeviceProfile, ...]:
    trace = collect(planted.events, num_steps=1)
    assert trace is not None
    _, launchers = fold_host(trace, is_users=lambda _: False)
    return fold_devices(trace, launchers)


def us(value_s: float | None) -> float:
    assert value_s is not None
    return round(value_s / US, 6)


def times(profile: HostProfile | DeviceProfile) -> dict[str, float]:
    return {one.name: us(one.time_s) for one in profile.classes}


# -- the host


def test_an_operators_own_time_is_without_what_it_calls() -> None:
    planted = Planted()
    planted.step(0, 0, 100)
    planted.op("aten::linear", 10, 60)
    planted.op("aten::addmm", 20, 50, **shapes([4, 8], [8, 2]))

    host = host_of(planted)

    own = {one.name: us(one.self_s) for one in host.operators}
    assert own == {"aten::linear": 20, "aten::addmm": 30}
    assert {one.name: one.shapes for one in host.operators}["aten::addmm"] == "[4, 8], [8, 2]"
    assert times(host) == {"matmul": 50}
    assert us(host.python_s) == 50


def test_classes_and_python_add_up_to_the_window() -> None:
    planted = Planted()
    planted.step(0, 0, 1000)
    planted.step(1, 1000, 1700)
    for start in (0, 1000):
        planted.op("aten::addmm", start + 100, start + 300.5)
        planted.op("aten::relu", start + 310, start + 320)
        planted.op("autograd::engine::evaluate_function: AddmmBackward0", start + 400, start + 500)
        planted.op("aten::mm", start + 420, start + 480)
        planted.range("Optimizer.step#AdamW.step", start + 500, start + 700)
        planted.op("aten::mul_", start + 550, start + 600)

    host = host_of(planted, num_steps=2)

    assert times(host) == {
        "matmul": 521,
        "optimizer": 100,
        "other": 80,
        "elementwise": 20,
    }
    assert us(host.window_s) == 1700
    assert sum(one.time_s for one in host.classes) + host.python_s == pytest.approx(host.window_s)
    assert sum(one.fraction for one in host.classes) == pytest.approx(721 / 1700)


def test_gaps_are_named_by_the_operators_around_them() -> None:
    planted = Planted()
    planted.step(0, 0, 100)
    planted.op("aten::addmm", 10, 20)
    planted.op("aten::relu", 50, 60)

    host = host_of(planted)

    assert [(us(gap.time_s), gap.after, gap.before) for gap in host.longest_gaps] == [
        (40, "aten::relu", ""),
        (30, "aten::addmm", "aten::relu"),
        (10, "", "aten::addmm"),
    ]
    assert (host.num_gaps, us(host.median_gap_s)) == (3, 30)


def test_what_runs_inside_attention_is_attention_and_a_cast_inside_a_product_is_a_copy() -> None:
    planted = Planted()
    planted.step(0, 0, 100)
    planted.op("aten::scaled_dot_product_attention", 0, 40)
    planted.op("aten::softmax", 10, 20)
    planted.op("aten::linear", 40, 100)
    planted.op("aten::to", 50, 70)
    planted.op("aten::as_strided", 80, 90)

    assert times(host_of(planted)) == {"attention": 40, "matmul": 40, "copy": 20}


def test_where_threads_work_at_once_an_instant_counts_for_the_one_that_trains() -> None:
    planted = Planted()
    planted.step(0, 0, 100)
    planted.op("aten::addmm", 0, 30)
    planted.op("aten::mul", 20, 60, thread=BACKWARD)
    planted.range("gloo:all_reduce", 50, 90, thread=EXCHANGE)

    host = host_of(planted)

    assert times(host) == {"matmul": 30, "elementwise": 30, "communication": 30}
    assert us(host.python_s) == 10
    assert {one.name: us(one.busy_s) for one in host.threads} == {
        "training": 30,
        "other": 40,
        "communication": 40,
    }


def test_python_in_the_loader_is_told_apart_from_its_operators() -> None:
    planted = Planted()
    planted.step(0, 0, 100)
    planted.range("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 10, 60)
    planted.op("aten::stack", 20, 40)

    host = host_of(planted)

    assert (us(host.python_s), us(host.loader_s)) == (80, 30)


def test_only_whole_steps_are_looked_at_and_what_reaches_out_of_them_is_cut() -> None:
    planted = Planted()
    planted.op("aten::mm", -50, 10)
    planted.step(0, 0, 100)
    planted.step(1, 100, 130)  # the script ended in it
    planted.op("aten::mm", 110, 120)

    host = host_of(planted, num_steps=1)

    assert us(host.window_s) == 100
    assert times(host) == {"matmul": 10}


def test_an_operator_is_found_in_the_users_function_that_led_to_it() -> None:
    planted = Planted()
    planted.step(0, 0, 100)
    planted.call("train.py(3): loss_of", 0, 50)
    planted.call("torch/nn/functional.py(9): relu", 5, 45)
    planted.op("aten::relu", 10, 20)
    planted.op("aten::mm", 60, 80)

    host = host_of(planted, users="train.py")

    places = {one.name: one.where for one in host.operators}
    assert places == {"aten::relu": "train.py(3): loss_of", "aten::mm": None}


def test_what_a_compiler_made_has_a_time_of_its_own_and_no_name() -> None:
    planted = Planted()
    planted.step(0, 0, 100)
    planted.range("## Call CompiledFxGraph fabq ##", 10, 60)
    planted.op("aten::mm", 20, 50)

    host = host_of(planted)

    assert times(host) == {"matmul": 30, "other": 20}
    assert us(host.python_s) == 50


# -- the device


def test_waiting_for_the_device_is_summed_once() -> None:
    planted = Planted()
    planted.step(0, 0, 100)
    planted.op("aten::_local_scalar_dense", 10, 40)
    planted.runtime("cudaStreamSynchronize", 15, 35)
    planted.runtime("cudaDeviceSynchronize", 90, 130)

    host = host_of(planted)

    assert us(host.sync_s) == 20 + 10
    assert times(host) == {"copy": 30}


def test_idle_time_is_host_wait_where_the_next_launch_came_too_late() -> None:
    planted = Planted()
    planted.step(0, 0, 200)
    planted.kernel("gemm_a", 10, 30, launched=1)
    planted.kernel("gemm_b", 32, 50, launched=5)  # in the queue long before
    planted.kernel("gemm_c", 90, 100, launched=85)  # nobody had asked for it at 50
    planted.kernel("gemm_d", 130, 140)  # launched where nothing was recorded

    (device,) = devices_of(planted)

    assert us(device.window_s) == 130
    assert us(device.busy_s) == 58
    assert us(device.kernel_wait_s) == 2
    assert us(device.host_wait_s) == 40
    assert us(device.unknown_wait_s) == 30
    assert device.busy_s + device.idle_s == pytest.approx(device.window_s)


def test_communication_is_exposed_where_nothing_computes_meanwhile() -> None:
    planted = Planted()
    planted.step(0, 0, 200)
    planted.kernel("gemm", 0, 40, launched=-5)
    planted.kernel("gemm", 50, 70, launched=-4)
    planted.kernel(
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20, 100, launched=-3, stream=COMMUNICATE
    )
    planted.kernel("Memcpy HtoD", 90, 110, launched=-2, stream=9, cat="gpu_memcpy")

    (device,) = devices_of(planted)

    assert us(device.communication_s) == 80
    assert us(device.exposed_communication_s) == 10 + 30
    assert times(device) == {"matmul": 60, "communication": 40, "copy": 10}
    assert us(device.idle_s) == 0
    assert device.num_streams == 3


def test_a_kernel_is_of_the_class_of_the_operator_that_launched_it() -> None:
    planted = Planted()
    planted.step(0, 0, 200)
    planted.range("Optimizer.step#AdamW.step", 0, 50)
    add = planted.op("aten::_foreach_add_", 5, 15)
    planted.op("aten::layer_norm", 60, 80)
    norm = planted.op("aten::native_layer_norm", 62, 78)
    elementwise = "void at::native::vectorized_elementwise_kernel<4, at::native::X>(int)"
    planted.kernel(elementwise, 20, 30, launched=8, by=add)
    planted.kernel(elementwise, 80, 85, launched=70, by=norm)
    planted.kernel(elementwise, 90, 93, launched=86)

    (device,) = devices_of(planted)

    assert times(device) == {"optimizer": 10, "normalization": 5, "elementwise": 3}
    assert [(one.kind, one.launched_by) for one in device.kernels] == [
        ("optimizer", "aten::_foreach_add_"),
        ("normalization", "aten::native_layer_norm"),
        ("elementwise", None),
    ]


def test_a_kernel_that_copies_computes_as_far_as_communication_is_hidden_by_it() -> None:
    planted = Planted()
    planted.step(0, 0, 100)
    cast = planted.op("aten::_to_copy", 0, 5)
    planted.kernel("elementwise_kernel", 10, 30, launched=2, by=cast)
    planted.kernel("ncclDevKernel", 10, 40, launched=3, stream=COMMUNICATE)

    (device,) = devices_of(planted)

    assert times(device) == {"copy": 20, "communication": 10}
    assert us(device.exposed_communication_s) == 10


def test_each_device_has_a_window_of_its_own() -> None:
    planted = Planted()
    planted.step(0, 0, 100)
    planted.kernel("gemm", 0, 10, launched=0)
    planted.kernel("gemm", 5, 50, launched=1, device=1)

    assert [(one.device, us(one.window_s)) for one in devices_of(planted)] == [(0, 10), (1, 45)]


def test_what_was_launched_after_the_last_whole_step_is_left_out() -> None:
    planted = Planted()
    planted.step(0, 0, 100)
    planted.kernel("gemm", 90, 130, launched=80)
    planted.kernel("gemm", 130, 170, launched=120)

    (device,) = devices_of(planted)

    assert (device.num_kernels, us(device.window_s)) == (1, 40)


# -- names


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::addmm", "matmul"),
        ("aten::convolution_backward", "convolution"),
        ("aten::mkldnn_convolution", "convolution"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu_backward", "attention"),
        ("aten::mkldnn_rnn_layer", "recurrent"),
        ("aten::_thnn_fused_lstm_cell", "recurrent"),
        ("aten::native_batch_norm_backward", "normalization"),
        ("aten::_log_softmax", "normalization"),
        ("aten::add_", "elementwise"),
        ("aten::gelu_backward", "elementwise"),
        ("aten::_foreach_add_", "elementwise"),
        ("aten::embedding_dense_backward", "embedding"),
        ("aten::_embedding_bag", "embedding"),
        ("aten::scatter_add_", "sparse"),
        ("aten::_sparse_mm", "sparse"),
        ("aten::_to_copy", "copy"),
        ("aten::cat", "copy"),
        ("c10d::allreduce_", "communication"),
        ("gloo:all_reduce", "communication"),
        ("Optimizer.step#SGD.step", "optimizer"),
        ("aten::_fused_adamw_", "optimizer"),
        ("triton_poi_fused_add_relu_0", "elementwise"),
        ("triton_red_fused_native_layer_norm_3", "normalization"),
        ("aten::as_strided", None),
        ("AddmmBackward0", None),
        ("autograd::engine::evaluate_function: AddmmBackward0", None),
        ("ProfilerStep#30", None),
    ],
)
def test_an_operators_class_is_found_by_its_name(name: str, kind: str | None) -> None:
    assert class_of_operator(name) == kind
    assert kind is None or kind in CLASSES


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ampere_sgemm_128x64_tn", "matmul"),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTN", "matmul"),
        ("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc", "convolution"),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>()", "attention"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication"),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16>()",
         "normalization"),
        ("void at::native::elementwise_kernel<128, 2, at::native::direct_copy_kernel_cuda>()",
         "copy"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>()",
         "elementwise"),
        ("void at::native::distribution_elementwise_grid_stride_kernel<normal_and_transform>()",
         "elementwise"),
        ("triton_tem_fused_mm_0", "matmul"),
        ("my_own_kernel", "other"),
    ],
)  # fmt: skip
def test_a_kernels_class_is_guessed_from_its_name(name: str, kind: str) -> None:
    assert class_of_kernel(name) == kind


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [
        ("maxwell_scudnn_winograd_128x128_ldg1_ldg4_relu_tile418n_nt", "winograd"),
        ("void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>()", "winograd"),
        ("void fft2d_r2c_32x32<float, false, 1u, false>(float2*, float const*)", "fft"),
        ("gcgemm_64x32_nt", "fft"),
        ("void cudnn::detail::implicit_convolve_sgemm<float, float, 128, 5>()", "implicit_gemm"),
        ("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc", "implicit_gemm"),
        ("volta_scudnn_128x64_relu_interior_nn_v1", "implicit_gemm"),
        ("void cudnn::detail::dgrad_engine<float, 128, 6, 7>()", "implicit_gemm"),
        ("void at::native::im2col_kernel<float>(long, float const*)", "gemm"),
        ("void at::native::conv_depthwise2d_forward_kernel<3, float, int>()", "direct"),
        ("void cudnn::ops::nchwToNhwcKernel<__half, __half, float>()", None),
        ("void at::native::elementwise_kernel<128, 2, direct_copy_kernel_cuda>()", None),
    ],
)
def test_a_convolutions_algorithm_is_read_from_its_name(name: str, algorithm: str | None) -> None:
    assert convolution_algorithm(name) == algorithm
    assert algorithm is None or algorithm in ALGORITHMS


def test_only_convolutions_have_an_algorithm() -> None:
    planted = Planted()
    planted.step(0, 0, 200)
    planted.kernel("maxwell_scudnn_winograd_128x128_nt", 10, 30, launched=1)
    planted.kernel("void fft2d_r2c_32x32<float>(float2*)", 40, 50, launched=5)

    (device,) = devices_of(planted)

    assert [(one.kind, one.algorithm) for one in device.kernels] == [
        ("convolution", "winograd"),
        ("other", None),
    ]


# -- layers of time


def test_an_earlier_layer_keeps_what_it_holds() -> None:
    assert layered([[(10, 20, 1)], [(0, 30, 2)], [(25, 40, 3)]]) == [
        (0, 10, 2),
        (10, 20, 1),
        (20, 30, 2),
        (30, 40, 3),
    ]


def test_within_a_layer_what_began_first_goes_on() -> None:
    assert layered([[(0, 10, 1), (5, 15, 2), (7, 9, 3)]]) == [(0, 10, 1), (10, 15, 2)]


def test_a_window_is_what_is_covered_and_what_is_not() -> None:
    covered = merged([(5, 10), (8, 12), (20, 25), (25, 25)])

    assert covered == [(5, 12), (20, 25)]
    assert list(outside(covered, 0, 30)) == [(0, 5), (12, 20), (25, 30)]
    assert list(outside(covered, 6, 22)) == [(12, 20)]
    assert list(without([(0, 30, 1)], covered)) == [(0, 5, 1), (12, 20, 1), (25, 30, 1)]


# -- files


def small() -> Planted:
    planted = Planted()
    planted.step(0, 0, 100)
    for start in range(0, 100, 10):
        planted.op("aten::mm", start, start + 5)
    return planted


def test_a_trace_is_read_event_by_event_plain_or_compressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steptime.measure.profile.trace_file.CHUNK", 37)  # events lie across pieces
    planted = small()
    path = planted.write(tmp_path / "rank-0.pt.trace.json")

    assert list(read_events(path)) == planted.events
    packed = compress(path)
    assert (packed.name, path.exists()) == ("rank-0.pt.trace.json.gz", False)
    assert list(read_events(packed)) == planted.events
    assert len(json.loads(gzip.decompress(packed.read_bytes()))["traceEvents"]) == 11


@pytest.mark.parametrize("cut", [0, 40, 400, 1200])
def test_a_trace_that_is_cut_says_so(tmp_path: Path, cut: int) -> None:
    path = small().write(tmp_path / "rank-0.pt.trace.json")
    path.write_bytes(path.read_bytes()[:cut])

    with pytest.raises(DamagedTraceError):
        list(read_events(path))


@pytest.mark.parametrize("content", [b"\x1f\x8b\x08\x00 no gzip", b"", b'{"a": 1}'])
def test_a_file_that_is_no_compressed_trace_says_so(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rank-0.pt.trace.json.gz"
    path.write_bytes(content)

    with pytest.raises(DamagedTraceError):
        list(read_events(path))


def test_events_of_another_shape_are_passed_over() -> None:
    planted = small()
    planted.events += [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm"},
        {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1, "dur": 2, "args": {}},
        {"ph": "X", "cat": "cpu_op", "name": ["?"], "ts": 1, "dur": 2, "tid": 1},
        {"ph": "M", "name": "process_name"},
    ]

    assert times(host_of(planted)) == {"matmul": 50}


def test_a_trace_without_a_step_is_nothing() -> None:
    planted = Planted()
    planted.op("aten::mm", 0, 5)

    assert collect(planted.events, num_steps=3) is None


def test_a_trace_with_more_events_than_are_looked_at_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(profile_trace, "MAX_ROWS", 5)

    with pytest.raises(TooLargeError):
        collect(small().events, num_steps=1)
