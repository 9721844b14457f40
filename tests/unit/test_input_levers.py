"""A finding of the input names the levers that fit what was seen of the data set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from steptime.diagnose.diagnosis import diagnose
from steptime.measure.values.machine_load import WorkerSummary
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.observations import LeverUse, LoaderUse, RecipeUse
from steptime.report.words.run.advice import bench_command, next_act, trial_command, trial_levers
from steptime.report.words.run.input_levers import fits_input
from unit.builders import make_measurement, make_quantity, make_rank

WORKERS = WorkerSummary(
    num_workers=2, num_batches=100, fetch_s_per_batch=0.9, collate_s_per_batch=0.01
)


def make(*, workers: WorkerSummary | None = None, **loader: Any) -> Measurement:
    rank = make_rank(forward=0.5)
    use = LoaderUse(dataset="Data", **({"module": "train"} | loader))
    return make_measurement(
        input_wait_s=0.5, fetch_s=0.5, ranks=(replace(rank, loaders=(use,)),), workers=workers
    )


def levers(measurement: Measurement) -> set[str]:
    (finding,) = [one for one in diagnose(measurement).findings if one.cause == "fetch"]
    return set(trial_levers(finding, measurement).levers)


def test_tensors_are_read_in_whole_batches() -> None:
    found = levers(make(module="torch.utils.data.dataset"))

    assert {"dataloader", "dataset_cache", "whole_batch_fetch"} <= found
    assert "jpeg_decoder" not in found


def test_images_in_memory_are_read_in_whole_batches_unless_a_transform_draws() -> None:
    digits = "torchvision.datasets.mnist"

    assert "whole_batch_fetch" in levers(make(module=digits, transforms=("ToTensor",)))
    assert "whole_batch_fetch" not in levers(make(module=digits, transforms=("RandomCrop",)))


def test_images_are_decoded_otherwise() -> None:
    found = levers(make(opens_images=True, transforms=("RandomResizedCrop", "ToTensor")))

    assert {"dataloader", "jpeg_decoder", "decoded_cache", "prepared_data"} <= found
    assert not {"dataset_cache", "whole_batch_fetch"} & found


def test_of_a_data_set_of_which_nothing_is_known_no_images_are_expected() -> None:
    assert levers(make(module=None)) == {"dataloader", "dataset_cache", "whole_batch_fetch"}


@pytest.mark.parametrize(
    ("lever", "loader", "fits"),
    [
        ("jpeg_decoder", {}, False),
        ("jpeg_decoder", {"opens_images": True}, True),
        ("decoded_cache", {"transforms": ("ToTensor",)}, True),
        ("decoded_cache", {}, False),
        ("dataset_cache", {"transforms": ("ToTensor",)}, True),
        ("dataset_cache", {"transforms": ("ColorJitter",)}, False),
        ("dataloader", {}, True),
    ],
)
def test_each_lever_by_what_it_needs(lever: str, loader: dict[str, Any], *, fits: bool) -> None:
    assert fits_input(lever, make(**loader)) is fits


def test_images_that_workers_open_count() -> None:
    measurement = make(workers=replace(WORKERS, opens_images=True))

    assert fits_input("jpeg_decoder", measurement)


def test_a_finding_of_the_input_offers_to_measure_its_parts() -> None:
    (finding,) = [one for one in diagnose(make()).findings if one.cause == "fetch"]

    assert bench_command(finding, make()) == "steptime data bench -- python train.py"
    assert bench_command(replace(finding, cause="copies"), make()) is None
    assert bench_command(replace(finding, kind=None), make()) is None


IMAGES = {"opens_images": True, "transforms": ("RandomResizedCrop", "ToTensor")}


def trained_with(*names: str, error: str | None = None, **loader: Any) -> Measurement:
    used = tuple(LeverUse(name=n, settings={}, is_in_guest=True, error=error) for n in names)
    recipe = RecipeUse(path="tuned.toml", study_id="s", speedup=make_quantity(1.2), levers=used)
    return replace(make(**loader), recipe=recipe)


@pytest.mark.parametrize("lever", sorted(levers(make(**IMAGES))))
def test_a_lever_of_the_input_that_is_on_is_not_offered(lever: str) -> None:
    assert lever not in levers(trained_with(lever, **IMAGES))


@pytest.mark.parametrize("lever", ["whole_batch_fetch", "dataset_cache"])
def test_a_lever_of_data_in_memory_that_is_on_is_not_offered(lever: str) -> None:
    plain = {"module": "torch.utils.data.dataset"}

    assert lever in levers(make(**plain))
    assert lever not in levers(trained_with(lever, **plain))


def test_a_lever_that_failed_is_offered_again() -> None:
    assert "prepared_data" in levers(trained_with("prepared_data", error="no file", **IMAGES))


def test_images_that_are_not_decoded_any_more_need_no_decoder() -> None:
    found = levers(trained_with("prepared_data", **IMAGES))

    assert not {"jpeg_decoder", "decoded_cache"} & found
    assert "dataloader" in found


def test_the_command_names_the_recipe_and_only_levers_that_it_lacks() -> None:
    measurement = trained_with("prepared_data", "autocast", "maxk", **IMAGES)

    told = trial_command(("dataloader",), measurement)
    assert told.startswith("steptime tune --recipe tuned.toml --levers dataloader -- ")
    act = next_act(measurement, diagnose(measurement))
    assert "The recipe already uses prepared_data." in act.sentence
    assert act.command.startswith("steptime tune --recipe tuned.toml --levers ")
    assert not {"prepared_data", "autocast", "maxk"} & set(act.command.split()[5].split(","))


def test_an_input_whose_levers_are_all_on_offers_none() -> None:
    every = ("dataloader", "prepared_data")
    measurement = trained_with(*every, **IMAGES)
    (finding,) = [one for one in diagnose(measurement).findings if one.cause == "fetch"]

    assert trial_levers(finding, measurement).missing == "in_recipe"
