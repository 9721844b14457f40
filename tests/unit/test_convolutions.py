"""The finding that names the algorithm of convolutions, by the names that traces have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from report_cases import make_classes, make_operator, profiled
from steptime.diagnose.ailments.all_ailments import ailment_of
from steptime.diagnose.ailments.compute.convolutions import find_convolution_algorithm
from steptime.diagnose.diagnosis import diagnose
from steptime.diagnose.values.finding import Severity
from steptime.measure.profile.convolution_algorithms import convolution_algorithm
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.profiled import OperatorTime
from steptime.measure.values.model.work import ClassCount, Count
from steptime.report.words.run.advice import trial_levers
from steptime.report.words.run.run_words import fill_in

WINOGRAD = "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>()"
IMPLICIT = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc"


def kernel(name: str, time_s: float) -> OperatorTime:
    return make_operator(name, "convolution", time_s, 3, algorithm=convolution_algorithm(name))


def convolving(*kernels: OperatorTime, window_s: float = 0.1) -> Measurement:
    m = profiled()
    assert m.profile is not None
    rank = m.profile.ranks[0]
    busy_s = sum(one.self_s for one in kernels)
    device = replace(
        rank.devices[0],
        window_s=window_s,
        classes=make_classes(window_s, convolution=busy_s),
        kernels=kernels,
    )
    ranks = (replace(rank, devices=(device,)), *m.profile.ranks[1:])
    return replace(m, profile=replace(m.profile, ranks=ranks))


def test_the_algorithm_that_takes_most_of_the_convolutions_is_named() -> None:
    found = find_convolution_algorithm(convolving(kernel(WINOGRAD, 0.01), kernel(IMPLICIT, 0.03)))

    assert found is not None
    assert found.severity is Severity.INFO
    row = ailment_of(found)
    assert row is not None
    said = (fill_in(row.sentence, found) or "").replace("\xa0", " ")
    assert "convolutions run for 40.0 % of the profiled time" in said
    assert "75.0 % of their time by implicit GEMM" in said


@pytest.mark.parametrize(
    "measurement",
    [
        convolving(kernel(WINOGRAD, 0.01)),  # a tenth of the window
        convolving(kernel("volta_unheard_of_kernel", 0.05)),
        profiled(),
        replace(profiled(), profile=None),
    ],
)
def test_without_much_of_them_or_without_names_nothing_is_said(measurement: Measurement) -> None:
    assert find_convolution_algorithm(measurement) is None


def test_it_ends_in_the_trial_of_cudnns_own_choice() -> None:
    sums = {"forward": 10, "backward": 20, "recomputed": 0, "macs": 15}
    convolution = ClassCount(name="convolution", num=3, flops=30)
    count = Count(**sums, by_dtype={"fp32": 30}, classes=(convolution,))
    measurement = replace(convolving(kernel(IMPLICIT, 0.05)), count=count)
    (found,) = [
        one for one in diagnose(measurement).findings if one.cause == "convolution_algorithm"
    ]

    assert trial_levers(found, measurement).levers[:2] == ("cudnn_benchmark", "channels_last")
