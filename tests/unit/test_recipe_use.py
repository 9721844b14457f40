"""A recipe checked against the levers there are, and what a run says of it afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from steptime.core.devices.machine_identity import MachineIdentity
from steptime.core.note import Fact
from steptime.errors import RecipeError
from steptime.levers import load_all
from steptime.levers.base import Lever
from steptime.measure.values.observations import Difference
from steptime.report.words.study.study_words import describe_difference
from steptime.testing.levers import settings_of
from steptime.tune.recipe.recipe_file import make_recipe
from steptime.tune.recipe.recipe_setup import check_levers, set_up
from steptime.tune.values.recipe_values import Recipe, Script
from steptime.tune.values.study_values import Applied
from study_cases import faster

GLIBC = Applied(name="allocator", settings={"library": "glibc_tuned", "mmap_threshold_mib": 32})
TCMALLOC = Applied(name="allocator", settings={"library": "tcmalloc"})
BF16 = Applied(name="autocast", settings={"dtype": "bf16"})


def make(*levers: Applied) -> Recipe:
    recipe = make_recipe(faster(), script=Script(command=("x",)), machine=MachineIdentity())
    return replace(recipe, levers=levers)


@pytest.mark.parametrize("lever", load_all(), ids=lambda lever: lever.name)
def test_all_that_a_lever_offers_may_stand_in_a_recipe(lever: Lever) -> None:
    for settings in settings_of(lever):
        applied = Applied(name=lever.name, settings=settings)
        assert check_levers(make(applied), path="x") == {lever.name: lever}


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("warp", {}, "names the lever `warp`, which this Steptime does not have"),
        ("autocast", {}, "the lever `autocast` misses its setting `dtype`"),
        ("autocast", {"dtype": "bf16", "speed": 9}, "the lever `autocast` has no setting `speed`"),
        ("dataset_cache", {"limit_bites": 9}, "`dataset_cache` has no setting `limit_bites`"),
        ("autocast", {"dtype": "bf17"}, "the lever `autocast` does not take the value 'bf17'"),
    ],
)
def test_an_unknown_lever_or_setting_is_one_clear_message(
    name: str, settings: dict, says: str
) -> None:
    with pytest.raises(RecipeError, match=says) as caught:
        check_levers(make(Applied(name=name, settings=settings)), path="tuned.toml")
    assert "tuned.toml" in str(caught.value)
    assert caught.value.hint


def test_environment_levers_become_variables_and_the_others_a_plan() -> None:
    setup = set_up(make(BF16, GLIBC), path="t", differences=(), libraries={"glibc": "2.36"})
    assert "MALLOC_TOP_PAD_" in setup.variables
    assert setup.plan is not None
    assert setup.plan["mode"] == "recipe"
    assert [one["name"] for one in setup.plan["levers"]] == ["autocast"]
    assert [(one.name, one.is_in_guest) for one in setup.use.levers] == [
        ("autocast", True),
        ("allocator", False),
    ]


def test_a_recipe_of_variables_alone_needs_no_plan() -> None:
    setup = set_up(make(GLIBC), path="t", differences=(), libraries={"glibc": "2.36"})
    assert setup.plan is None


def test_a_library_that_is_not_here_costs_its_lever_alone() -> None:
    setup = set_up(make(BF16, TCMALLOC), path="t", differences=(), libraries={})
    assert setup.variables == {}
    assert [one.error for one in setup.use.levers] == [None, "tcmalloc is not installed here"]


@pytest.mark.parametrize(
    ("what", "proven", "here", "text"),
    [
        ("num_cores", 2, 64, "it was proven with 2 cores; here there are 64"),
        ("memory_bytes", 8 << 30, 4 << 30, "it was proven with 8.00 GiB of memory; here"),
        ("moon", "full", "new", "moon: full, here new"),
    ],
)
def test_a_difference_is_a_sentence(what: str, proven: Fact, here: Fact, text: str) -> None:
    assert text in describe_difference(Difference(what=what, proven=proven, here=here))
