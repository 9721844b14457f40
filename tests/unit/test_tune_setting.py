"""From a state to the variables and the plan of a child."""

from __future__ import annotations

from dataclasses import replace

import pytest

from steptime.levers import file_of, load
from steptime.levers.base import Moment
from steptime.tune.trials.trial_setting import (
    add_variables,
    describe_state,
    make_plan,
    variables_of,
)
from steptime.tune.values.study_values import Applied
from unit.test_tune_live import make_lever

PRELOADING = replace(
    make_lever("first"),
    moment=Moment.ENVIRONMENT,
    variables=lambda settings, libraries: {"LD_PRELOAD": libraries["a"], "A": "1"},
)
ALSO = replace(
    make_lever("second"),
    moment=Moment.ENVIRONMENT,
    variables=lambda settings, libraries: {"LD_PRELOAD": "/b.so", "B": str(settings["count"])},
)
LIVE = make_lever("live")
LEVERS = {lever.name: lever for lever in (PRELOADING, ALSO, LIVE)}
STATE = (
    Applied(name="first", settings={}),
    Applied(name="second", settings={"count": 2}),
    Applied(name="live", settings={"dtype": "bf16"}),
)


def test_levers_of_the_environment_set_variables() -> None:
    found = variables_of(STATE, LEVERS, {"a": "/a.so"})

    assert found == {"LD_PRELOAD": "/b.so:/a.so", "A": "1", "B": "2"}


def test_what_a_lever_preloads_stands_before_what_the_user_does() -> None:
    environment = {"LD_PRELOAD": "/theirs.so", "HOME": "/home/me"}

    found = add_variables(environment, {"LD_PRELOAD": "/ours.so", "HOME": "/tmp"})

    assert found == {"LD_PRELOAD": "/ours.so:/theirs.so", "HOME": "/tmp"}


def test_a_plan_holds_the_levers_that_the_guest_applies() -> None:
    plan = make_plan(STATE, LEVERS, is_live=True)

    assert [(lever["name"], lever["settings"]) for lever in plan["levers"]] == [
        ("live", {"dtype": "bf16"})
    ]
    assert (plan["mode"], plan["is_live"], plan["quality"]) == ("trial", True, None)


@pytest.mark.parametrize("name", ["autocast", "num_threads"])
def test_a_lever_is_found_in_the_file_that_is_named_like_it(name: str) -> None:
    assert file_of(load(name)).endswith(f"/{name}.py")


def test_the_command_as_written_has_an_empty_plan() -> None:
    assert describe_state((), LEVERS) == []
