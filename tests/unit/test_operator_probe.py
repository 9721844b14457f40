"""What one update's counted operators say; how they are counted needs torch (end_to_end)."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from steptime.guest.count.operator_probe import PROBE_AT, OperatorProbe
from steptime.guest.count.tally import TINY_NS
from steptime.guest.sites.site_windows import MAX_WAITING, WINDOWS, SiteWindows


class Frames:
    """Nothing is walked."""

    loops: dict[Any, Any] = {}  # noqa: RUF012

    def stack(self, frame: object) -> tuple[()]:
        return ()


def new_probe() -> OperatorProbe:
    return OperatorProbe(SimpleNamespace(), fail=lambda place: None)


class Journal:
    """What windows ask of a journal."""

    def __init__(self) -> None:
        self.is_direct = self.is_attentive = False
        self.probe: OperatorProbe | None = None
        self.num_disturbed = 0
        self.recorder = SimpleNamespace(num_optimizers=1)

    def disturb(self) -> None:
        self.num_disturbed += 1


@pytest.fixture
def windows() -> SiteWindows:
    return SiteWindows(Frames(), new_probe(), clock=lambda: 0)  # type: ignore[arg-type]


def test_operators_are_sorted_by_what_they_take() -> None:
    probe = new_probe()
    probe.durations += [TINY_NS - 1, 5_000, TINY_NS, 70_000]

    assert json.loads(probe.line(13)) == {
        "k": "ops",
        "n": 13,
        "num": 4,
        "num_tiny": 2,
        "tiny_ns": TINY_NS - 1 + 5_000,
        "large_ns": TINY_NS + 70_000,
    }


def test_without_an_operator_there_were_too_few_updates() -> None:
    assert json.loads(new_probe().line(3)) == {"k": "ops", "n": 3, "missing": "too_few_updates"}


def test_a_reason_outweighs_what_was_counted_until_then() -> None:
    probe = new_probe()
    probe.durations.append(5)
    probe.missing = "subclass"

    assert json.loads(probe.line(13))["missing"] == "subclass"


def end_updates(
    windows: SiteWindows, journal: Any, num: int, *, is_by_hand: bool = False
) -> list[bool]:
    """Whether each next update is one of a window."""
    found = []
    for _ in range(num):
        windows.end_update(journal, is_by_hand=is_by_hand)
        found.append(journal.is_attentive)
    return found


def test_windows_are_the_updates_that_the_reference_names(windows: SiteWindows) -> None:
    walked = end_updates(windows, Journal(), 40)
    inside = [number for number, is_walked in enumerate(walked, start=1) if is_walked]

    assert WINDOWS == ((1, 3), (24, 27))
    assert inside == [1, 2, 3, 24, 25, 26, 27]
    assert windows.is_over


def test_the_operators_update_has_a_scout_before_it(windows: SiteWindows) -> None:
    journal = Journal()
    seen = {}
    for number in range(1, 30):
        windows.end_update(journal, is_by_hand=False)  # type: ignore[arg-type]
        if journal.probe is not None:
            seen[number] = journal.probe.is_scouting

    assert seen == {PROBE_AT - 1: True, PROBE_AT: False}


def test_where_two_optimizers_take_turns_an_update_of_each_is_counted(windows: SiteWindows) -> None:
    journal = Journal()
    journal.recorder.num_optimizers = 2
    seen = {}
    for number in range(1, 30):
        windows.end_update(journal, is_by_hand=False)  # type: ignore[arg-type]
        if journal.probe is not None:
            seen[number] = journal.probe.is_scouting

    assert list(seen) == [PROBE_AT - 2, PROBE_AT - 1, PROBE_AT, PROBE_AT + 1]
    assert list(seen.values()) == [True, True, False, False]
    told = [json.loads(line) for line in windows.pop_lines()]
    assert [(line["k"], line["n"]) for line in told] == [("ops", 13), ("count", 14)]


def test_rows_of_backward_calls_do_not_count_once_an_optimizer_steps(windows: SiteWindows) -> None:
    journal = Journal()
    end_updates(windows, journal, 3, is_by_hand=True)
    walked = end_updates(windows, journal, 6)

    assert walked == [True, True, True, False, False, False]


def test_a_journal_that_is_direct_stays_attentive(windows: SiteWindows) -> None:
    journal = Journal()
    journal.is_direct = True

    assert all(end_updates(windows, journal, 40))


def test_the_line_on_operators_is_written_once(windows: SiteWindows) -> None:
    end_updates(windows, Journal(), 40)
    lines = windows.pop_lines() + windows.pop_last_lines()

    assert [json.loads(line)["k"] for line in lines] == ["ops", "count"]


class Times:
    """Device times that are there from some question on."""

    def __init__(self, after: int) -> None:
        self.num_asked = -after

    def have_passed(self) -> bool:
        self.num_asked += 1
        return self.num_asked > 0


@pytest.mark.parametrize(
    ("after", "told_in"), [(0, PROBE_AT + 1), (3, PROBE_AT + 4), (100, PROBE_AT + 1 + MAX_WAITING)]
)
def test_the_count_waits_for_the_device_but_not_for_ever(
    windows: SiteWindows, after: int, told_in: int
) -> None:
    journal, told = Journal(), {}
    windows.probe.tally = SimpleNamespace(times=Times(after), num=0)  # type: ignore[assignment]
    for number in range(1, 30):
        windows.end_update(journal, is_by_hand=False)  # type: ignore[arg-type]
        for line in map(json.loads, windows.pop_lines()):
            told[line["k"]] = (number, line["n"])

    assert told["count"] == (told_in, PROBE_AT + 1)


def test_a_training_that_ends_before_its_device_tells_what_is_known(windows: SiteWindows) -> None:
    windows.probe.tally = SimpleNamespace(  # type: ignore[assignment]
        times=Times(100), num=1, table=lambda **_: {"forward": 7}
    )
    end_updates(windows, Journal(), PROBE_AT + 2)

    (line,) = [one for one in map(json.loads, windows.pop_last_lines()) if one["k"] == "count"]
    assert (line["updates"], line["forward"]) == (1, 7)
