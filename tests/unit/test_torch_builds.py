"""Which build of torch is offered, and in what kind of environment a command may stand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from steptime.machine.checks.software.torch_builds import change_build, install, newer_torch
from steptime.machine.values.check_facts import CheckFacts, Software
from steptime.machine.values.check_values import Disruption, Runner
from unit.check_cases import DOCKER, make_gpu, make_software, on_gpu


def gpus(*capabilities: str, cuda: str = "13.0", driver: str = "580.65.06") -> CheckFacts:
    facts = on_gpu(*(make_gpu(i, compute_capability=c) for i, c in enumerate(capabilities)))
    inventory = replace(facts.inventory, cuda_driver=cuda, nvidia_driver=driver)
    return replace(facts, inventory=inventory)


def line_of(facts: CheckFacts, software: Software) -> str:
    commands, _ = change_build(facts, software)
    assert len(commands) == 1
    assert (commands[0].who, commands[0].disrupts) == (Runner.USER, Disruption.PACKAGES)
    return commands[0].line


@pytest.mark.parametrize(
    ("capabilities", "torch", "cuda", "driver", "build"),
    [
        (("7.0",), "2.13.0+cu130", "13.0", "580.65.06", "2.13.0+cu126"),  # V100
        (("7.0", "8.0"), "2.9.1+cu130", "13.0", "580.65.06", "2.9.1+cu126"),
        (("6.1",), "2.8.0+cu128", "12.8", "570.86.10", "2.8.0+cu126"),
        (("9.0",), "2.13.0+cpu", "13.0", "580.65.06", "2.13.0+cu130"),
        (("9.0",), "2.9.1+cpu", "12.8", "570.86.10", "2.9.1+cu128"),
        (("9.0",), "2.9.1+cpu", "12.4", "550.54.15", "2.9.1+cu126"),
        (("12.0",), "2.8.0+cu126", "12.8", "570.86.10", "2.8.0+cu128"),
        (("10.3",), "2.12.0+cu126", "13.0", "580.65.06", "2.12.0+cu130"),
        (("8.9",), "2.13.0+cu130", "12.2", "535.104.05", "2.13.0+cu126"),
    ],
)
def test_the_same_version_in_a_build_for_these_gpus_and_this_driver(
    capabilities: tuple[str, ...], torch: str, cuda: str, driver: str, build: str
) -> None:
    facts = gpus(*capabilities, cuda=cuda, driver=driver)

    line = line_of(facts, make_software(torch=torch))

    word = build.partition("+")[2]
    assert line == (
        f"/opt/env/bin/python -m pip install torch=={build}"
        f" --index-url https://download.pytorch.org/whl/{word}"
    )


def test_what_was_made_for_the_old_build_comes_along() -> None:
    software = make_software(companions=(("torchvision", "0.28.0+cu130"), ("torchaudio", "2.13.0")))

    line = line_of(gpus("7.0"), software)

    assert "torch==2.13.0+cu126 torchvision==0.28.0+cu126 torchaudio==2.13.0+cu126" in line


@pytest.mark.parametrize(
    ("capability", "torch", "words"),
    [
        ("7.0", "2.15.0+cu130", "those of cu126 do, from torch 2.6 to 2.14"),
        ("12.0", "2.6.0+cu126", "those of cu130 do, from torch 2.9 on"),
        ("3.5", "2.6.0+cu126", "No published build"),
    ],
)
def test_no_build_of_this_version_is_advice(capability: str, torch: str, words: str) -> None:
    commands, advice = change_build(gpus(capability), make_software(torch=torch))

    assert commands == ()
    assert words in advice[0]


def test_a_driver_too_old_for_all_builds_is_advice() -> None:
    facts = gpus("9.0", cuda="11.4", driver="470.57.02")

    assert change_build(facts, make_software())[0] == ()


@pytest.mark.parametrize("torch", ["2.14.0.dev20260801+cu130", "2.9.0a0+git1234567"])
def test_a_torch_that_somebody_made_is_theirs(torch: str) -> None:
    commands, advice = change_build(gpus("7.0"), make_software(torch=torch))

    assert commands == ()
    assert "whoever built this torch" in advice[0]


def test_other_processors_have_other_builds() -> None:
    facts = gpus("9.0")
    cpu = replace(facts.inventory.cpu, architecture="aarch64")
    facts = replace(facts, inventory=replace(facts.inventory, cpu=cpu))

    assert change_build(facts, make_software())[0] == ()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"installer": "conda"}, "conda made this environment"),
        ({"is_writable": False}, "not yours to change"),
        ({"is_managed": True}, "not yours to change"),
        ({"has_pip": False}, "not yours to change"),
    ],
)
def test_packages_of_somebody_else_are_left_alone(fields: dict[str, object], words: str) -> None:
    commands, advice = install(gpus("9.0"), make_software(**fields), ["torch==2.9.1"])

    assert commands == ()
    assert words in advice[0]


def test_what_uv_installed_uv_installs() -> None:
    software = make_software(installer="uv", has_pip=False)

    assert line_of(gpus("7.0"), software).startswith(
        "uv pip install --python /opt/env/bin/python torch==2.13.0+cu126 --index-url"
    )


def test_in_a_container_the_image_is_named() -> None:
    facts = replace(gpus("7.0"), inventory=replace(gpus("7.0").inventory, limits=DOCKER))

    commands, advice = change_build(facts, make_software())

    assert len(commands) == 1
    assert "image" in advice[0]


@pytest.mark.parametrize(
    ("capabilities", "cuda", "words"),
    [
        (("8.0",), "13.0", "whl/cu130"),
        (("8.0", "7.0"), "13.0", "do not fit"),
        (("8.0",), "12.4", "do not fit"),
    ],
)
def test_a_newer_torch_is_advised_only_where_it_would_run(
    capabilities: tuple[str, ...], cuda: str, words: str
) -> None:
    assert words in newer_torch(gpus(*capabilities, cuda=cuda, driver="550.54.15"))
