"""What the report and the page say of profiled steps, and of those that were not seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from report_cases import healthy, make_operator, profiled
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.profiled import Profile, ProfileWish, RankProfile
from steptime.report.blocks.work.profile_blocks import REASONS, profile_blocks
from steptime.report.html.paint_html import paint
from told_blocks import told


def text_of(m: Measurement) -> str:
    return told(profile_blocks(m))


def missing(word: str, *, tool: str = "torch") -> Measurement:
    wish = ProfileWish(tool=tool, first_step=30)
    ranks = (RankProfile(rank=0, missing=word),)
    return replace(healthy(), profile=Profile(wish=wish, ranks=ranks, missing=word))


def with_rank(**changes: object) -> Measurement:
    m = profiled()
    assert m.profile is not None
    rank = replace(m.profile.ranks[0], **changes)  # type: ignore[arg-type]
    return replace(m, profile=replace(m.profile, ranks=(rank,)))


def test_nothing_is_said_where_nobody_asked() -> None:
    assert text_of(healthy()) == ""


@pytest.mark.parametrize("word", REASONS)
def test_each_reason_has_a_sentence(word: str) -> None:
    text = text_of(missing(word))

    assert text.startswith("profile    not measured: ")
    assert "{" not in text


def test_a_script_that_was_too_short_says_how_short() -> None:
    text = text_of(missing("too_few_updates"))

    assert "the script made 500 steps; it was to begin at step 30" in text


def test_what_is_cut_or_mixed_says_so() -> None:
    text = text_of(with_rank(is_cut=True, is_mixed=True, num_steps=1))

    assert "step 30 under torch.profiler" in text
    assert "The script ended before that" in " ".join(text.split())
    assert "Something else fell into them" in " ".join(text.split())


def test_without_a_device_the_host_is_all_there_is() -> None:
    text = text_of(with_rank(devices=()))

    assert "device 0" not in text
    assert "aten::mm 1.03 ms per step in 72 calls (matmul) [4096, 384], [384, 1536]" in text


def test_a_function_of_the_script_is_worth_more_than_shapes() -> None:
    m = with_rank(devices=())
    assert m.profile is not None
    host = m.profile.ranks[0].host
    assert host is not None
    one = make_operator("aten::mm", "matmul", 0.003, 3, shapes="[1]", where="train.py(3): loss_of")
    text = text_of(with_rank(devices=(), host=replace(host, operators=(one,))))

    assert "aten::mm 1.00 ms per step in 1 call (matmul) from train.py(3): loss_of" in text


def test_nsight_systems_has_a_file_of_its_own() -> None:
    m = profiled()
    assert m.profile is not None
    rank = RankProfile(rank=0, first_step=30, num_steps=3)
    wish = ProfileWish(tool="nsys", first_step=30)
    profile = Profile(wish=wish, ranks=(rank,), file="profile/nsys.nsys-rep")
    text = text_of(replace(m, profile=profile))

    assert "steps 30 to 32 under Nsight Systems" in text
    assert "profile/nsys.nsys-rep" in text
    assert "nsys-ui" in text


def test_no_name_in_a_trace_becomes_markup_or_a_control_character() -> None:
    hostile = make_operator("<script>alert(1)</script>\x1b[2J", "other", 0.1, 3, shapes="\x1b[2J")
    m = with_rank(devices=())
    assert m.profile is not None
    host = m.profile.ranks[0].host
    assert host is not None
    m = with_rank(devices=(), host=replace(host, operators=(hostile,)))

    assert "\x1b" not in text_of(m)
    page = paint(profile_blocks(m)).text
    assert "alert(1)" in page
    assert "<script>" not in page
    assert "\x1b" not in page


def test_a_convolution_says_by_which_algorithm() -> None:
    kernels = (
        make_operator("cudnn_winograd", "convolution", 0.01, 3, algorithm="winograd"),
        make_operator("conv", "convolution", 0.01, 3),
    )
    m = profiled()
    assert m.profile is not None
    device = replace(m.profile.ranks[0].devices[0], kernels=kernels)
    text = text_of(with_rank(devices=(device,)))

    assert "cudnn_winograd 3.33 ms per step in 1 call (convolution by Winograd)" in text
    assert "conv 3.33 ms per step in 1 call (convolution)" in text
