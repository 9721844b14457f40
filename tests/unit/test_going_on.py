"""What a search still has to ask: which levers were never told apart from the others."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace

import pytest

from steptime.tune.search.rounds.going_on import untold
from steptime.tune.values.study_values import Applied, State

A, B, C = (Applied(name=name, settings={}) for name in ("a", "b", "c"))
B_LARGER = Applied(name="b", settings={"size": 2})


def trial(state: State, reference: State = (), kind: str = "live") -> SimpleNamespace:
    return SimpleNamespace(state=state, reference=reference, kind=kind)


def names(trials: Iterable[SimpleNamespace], left_out: Iterable[str] = ()) -> list[str]:
    """The levers that remain untold after these trials, of three that were offered."""
    notes = SimpleNamespace(trials=list(trials), left_out=set(left_out))
    offered = [SimpleNamespace(name=name) for name in ("a", "b", "c")]
    lab: object = SimpleNamespace(notes=notes, offered=offered)
    return [one.name for one in untold(lab)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tried", "left"),
    [
        pytest.param([], ["a", "b", "c"], id="nothing was tried"),
        pytest.param([trial((A,))], ["b", "c"], id="alone"),
        pytest.param([trial((A, B, C))], ["a", "b", "c"], id="together"),
        pytest.param([trial((A, B), (A,))], ["a", "c"], id="beside one that is on in both"),
        pytest.param([trial((A,), (A, B))], ["a", "b", "c"], id="the candidate adds nothing"),
        pytest.param([trial((B_LARGER,), (B,))], ["a", "c"], id="another setting of it"),
        pytest.param([trial((A, B), (), "process"), trial((C,), (), "process")], ["a", "b"]),
        pytest.param([trial((A,), (), "quality")], ["a", "b", "c"], id="quality times nothing"),
        pytest.param([trial((A,)), trial((A, B), (A,)), trial((C,))], [], id="all of them"),
    ],
)
def test_a_lever_is_told_where_a_timed_trial_differs_in_it_alone(
    tried: list[SimpleNamespace], left: list[str]
) -> None:
    assert names(tried) == left


def test_a_lever_that_was_left_out_is_not_asked_for() -> None:
    assert names([trial((A, B))], left_out=["b"]) == ["a", "c"]
