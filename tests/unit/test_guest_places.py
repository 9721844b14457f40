"""Whose code a file holds."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from steptime.guest.sites import file_owners as guest_places
from steptime.guest.sites.file_owners import LIBRARYS, NOBODYS, USERS, FileOwners

PACKAGES = "/venv/lib/python3.11/site-packages"
TORCH = SimpleNamespace(__file__=f"{PACKAGES}/torch/__init__.py")


@pytest.fixture
def places() -> FileOwners:
    return FileOwners(TORCH)


@pytest.mark.parametrize(
    ("file", "owner"),
    [
        ("/home/me/project/train.py", USERS),
        ("/home/me/torch/train.py", USERS),
        (f"{PACKAGES}/transformers/trainer.py", LIBRARYS),
        ("/usr/lib/python3/dist-packages/numpy/core.py", LIBRARYS),
        (f"{PACKAGES}/torch/nn/modules/module.py", NOBODYS),
        (f"{PACKAGES}/torchvision/transforms.py", LIBRARYS),
        (json.__file__, NOBODYS),
        (guest_places.__file__, NOBODYS),
        ("<string>", NOBODYS),
        ("<eval_with_key>.7", NOBODYS),
    ],
)
def test_a_file_belongs_to_somebody(places: FileOwners, file: str, owner: int) -> None:
    assert places.owner(file) == owner
    assert places.owner(file) == owner


def test_the_innermost_of_the_users_frames_is_the_place(places: FileOwners) -> None:
    frames = [
        ("/home/me/train.py", 9),
        ("/home/me/model.py", 3),
        (f"{PACKAGES}/timm/layers.py", 5),
        (f"{PACKAGES}/torch/nn/modules/module.py", 1),
    ]
    assert places.innermost(frames) == ("/home/me/model.py", 3)


def test_without_code_of_the_users_a_librarys_is_the_place(places: FileOwners) -> None:
    frames = [(f"{PACKAGES}/timm/a.py", 1), (f"{PACKAGES}/timm/b.py", 2), ("<string>", 1)]
    assert places.innermost(frames) == (f"{PACKAGES}/timm/b.py", 2)


def test_torchs_own_frames_are_no_place(places: FileOwners) -> None:
    assert places.innermost([(f"{PACKAGES}/torch/optim/sgd.py", 7), (json.__file__, 3)]) is None


def test_made_up_files_are_not_remembered(places: FileOwners) -> None:
    for number in range(100):
        places.owner(f"<eval_with_key>.{number}")
    assert not places.known


def test_a_file_that_a_library_writes_for_itself_is_the_librarys() -> None:
    owners = FileOwners(TORCH)

    assert owners.owner("/tmp/json.encoder_made_4x7.py") == LIBRARYS
    assert owners.owner("/home/me/json_reader.py") == USERS
    assert owners.owner("/home/me/my.experiment.py") == USERS
