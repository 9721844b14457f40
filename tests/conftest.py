"""Options of the tests, and the rule that a slow test says why it is slow."""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

from rotation import FAST, takes

# A busy machine is no failure. What a change is judged by is the same for everybody; elsewhere,
# each run tries other examples.
settings.register_profile("steptime", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("steptime")

TESTS = Path(__file__).parent
GOLDEN = TESTS / "golden"


NEEDED = {
    "google_crc32c": (
        *("conversion_gain", "convert", "crc32c", "data_s3", "data_stores", "foreign_formats"),
        *("prepared", "prepared_lever", "sample_checks", "source_bench", "source_damage"),
        "sources",
    ),
    "numpy": ("data_loader", "data_order", "data_tiers", "data_torch"),
    "numba": ("fused_sampling", "graph_loader", "graph_partition", "graph_sampling"),
    "pyarrow": ("convert", "data_s3", "data_stores", "order_checks", "prepared", "source_bench"),
    "PIL": ("sample_checks",),
    "simplejpeg": ("conversion_gain", "data_feed_torch"),
    "torch": ("operator_turns", "product_book", "shapes"),
}
"""Packages without which these unit tests cannot even be read; others skip by themselves."""

MISSING = [name for name in NEEDED if find_spec(name) is None]
collect_ignore = [f"unit/test_{test}.py" for name in MISSING for test in NEEDED[name]]


def pytest_report_header() -> list[str]:
    """What is not read here, and why."""
    return [f"without {name}: not read: {', '.join(NEEDED[name])}" for name in MISSING]


@pytest.fixture(autouse=True, scope="module")
def frozen_past() -> None:
    """What came before is not walked again: each count and each collection looks at all objects.

    In a process that has run thousands of tests, that was four fifths of what a count took.
    """
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")
    parser.addoption(
        "--slow-after",
        type=float,
        metavar="SECONDS",
        help="fail where a test takes longer and has no mark slow(reason)",
    )
    parser.addoption(
        "--fast",
        action="store_true",
        help="the tests of the fast check: of slow ones those marked `core`, and of those marked "
        "`rotates` the ones whose turn it is (tests/rotation.py)",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--fast"):
        os.environ[FAST] = "1"  # the harness starts forks where it can
    is_worker = hasattr(config, "workerinput")  # of pytest-xdist: its tests are told to the first
    if config.getoption("--slow-after") and not is_worker:
        config.pluginmanager.register(Slowness(config.getoption("--slow-after")))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what the folder and the other marks imply, and hold `slow` to its reason."""
    for item in items:
        if TESTS / "end_to_end" in item.path.parents:
            item.add_marker(pytest.mark.end_to_end)
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.serial)
        for mark in item.iter_markers("slow"):
            if not (mark.args and isinstance(mark.args[0], str)):
                raise pytest.UsageError(f'{item.nodeid}: write slow("why it is")')
        if item.get_closest_marker("slow"):
            item.user_properties.append(("is_slow", True))
    if config.getoption("--fast"):
        waiting = {item for item in items if not _has_its_turn(item)}
        config.hook.pytest_deselected(items=list(waiting))
        items[:] = [item for item in items if item not in waiting]
    # Whole runs come first: where files are shared out, the short ones fill the end.
    items.sort(key=lambda item: item.get_closest_marker("end_to_end") is None)


def _has_its_turn(item: pytest.Item) -> bool:
    """Whether the fast check takes a test: where many are alike, those whose turn it is."""
    mark = item.get_closest_marker("rotates")
    if mark is None or item.get_closest_marker("serial"):
        return not item.get_closest_marker("slow") or bool(item.get_closest_marker("core"))
    return takes(mark.args[0] or item.name, mark.kwargs["rooms"])


def _cpu_s() -> float:
    """Processor time of this process and of its children that have ended [s]."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    item.user_properties.append(("cpu_before_s", _cpu_s()))
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    result = yield
    took_s = _cpu_s() - dict(item.user_properties)["cpu_before_s"]
    limit_s = item.config.getoption("--slow-after")
    if limit_s and took_s > limit_s:
        took_s /= max(1.0, _fixed_work_s() / FIXED_WORK_S)
    item.user_properties.append(("cpu_s", took_s))
    return result


FIXED_WORK_S = 0.1
"""What `_fixed_work_s` took on the machine whose seconds the limit of slow tests is given in."""


def _fixed_work_s() -> float:
    """Processor time of a piece of Python that is always the same [s]; the best of three."""
    times = []
    for _ in range(3):
        begin = time.process_time()
        text = json.dumps({str(number): [number, 1 / (number + 1)] for number in range(60_000)})
        json.loads(text)
        times.append(time.process_time() - begin)
    return min(times)


class Slowness:
    """Notes what each test takes with what it sets up; fails a run with unexplained ones.

    In processor time, and on a slower machine by its pace: neither a busy machine nor an old one
    makes a test slow. What forks of the fork server take is not in it.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.took_s: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        about = dict(report.user_properties)
        if report.when == "teardown" and not about.get("is_slow") and "cpu_s" in about:
            self.took_s[report.nodeid] = about["cpu_s"]

    def unexplained(self) -> dict[str, float]:
        """Tests that took too long."""
        return {test: s for test, s in self.took_s.items() if s > self.limit_s}

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.unexplained() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for test, took_s in sorted(self.unexplained().items()):
            terminalreporter.write_line(
                f"SLOW {test} took {took_s:.1f} CPU s, above {self.limit_s:g} s, and does not say "
                'why: mark it slow("reason")',
                red=True,
            )


@pytest.fixture
def check_golden(request: pytest.FixtureRequest) -> Callable[[Path | str, str], None]:
    """A check that a golden file (by name, or by path) holds this text; or its rewriting."""

    def check(name: Path | str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return check
