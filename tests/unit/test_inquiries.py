"""What a process does when it is asked: it examines an update, and leaves all as it was."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from steptime.guest.asked import health_inquiry, memory_inquiry
from steptime.guest.asked.count_inquiry import CountInquiry
from steptime.guest.asked.health_inquiry import HealthInquiry
from steptime.guest.asked.memory_inquiry import OWN_UPDATES, AskedProbe, MemoryInquiry
from steptime.guest.asked.profile_inquiry import ProfileInquiry
from steptime.guest.asked.question_watcher import RefusedError
from steptime.guest.sites.site_windows import SiteWindows
from unit.test_profile_window import FakeRecorder, FakeTool
from unit.test_questions import ID, make_question


class Journal:
    """What an inquiry asks of a journal."""

    def __init__(self, num_updates: int = OWN_UPDATES + 1) -> None:
        self.num_updates = num_updates
        self.num_spans = 0
        self.probe: Any = None
        self.plan: Any = None
        self.windows: Any = None
        self.recorder = SimpleNamespace(num_optimizers=1)
        self.num_disturbed = 0

    def disturb(self) -> None:
        self.num_disturbed += 1


# -- memory


class OwnProbe:
    """The run's own memory probe."""

    def __init__(self) -> None:
        self.storages: Any = None
        self.is_over = False
        self.due: str | None = None
        self.said: list[str] = []

    def count_update(self, operators: Any) -> str | None:
        self.said.append("count_update")
        return self.due

    def see_end(self) -> None:
        self.said.append("see_end")


class Context:
    """What the inquiry asks of a context; a dissection is what the probe notes by itself."""

    def __init__(self, own: OwnProbe | None) -> None:
        self.anatomy: Any = own
        self.torch: Any = None
        self.dissected: list[str] = []
        self.fails = False

    def dissect(self, what: str) -> None:
        self.dissected.append(what)
        if self.fails:
            self.anatomy.facts["failed"] = what
            return
        self.anatomy.groups = {"fp32 [10]": [400, 10], "int64 [2]": [16, 1]}
        self.anatomy.write("mem", {"moment": "update", "parts": {}})


@pytest.fixture
def make_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(context: Any, write: Any, kind: type[AskedProbe]) -> AskedProbe:
        nothing: Any = list
        return kind(None, write, find_models=nothing, find_optimizers=nothing, find_ddp=nothing)

    monkeypatch.setattr(memory_inquiry, "make_probe", make)


@pytest.mark.usefixtures("make_probe")
def test_one_update_is_examined_and_the_runs_own_probe_comes_back() -> None:
    own, journal = OwnProbe(), Journal(40)
    context = Context(own)
    inquiry = MemoryInquiry(context)  # type: ignore[arg-type]

    assert inquiry.begin(journal)  # type: ignore[arg-type]
    assert context.anatomy is inquiry.probe
    journal.num_updates += 1
    inquiry.end_update(journal, 0)  # type: ignore[arg-type]

    assert inquiry.is_over
    assert context.anatomy is own
    assert context.dissected == ["see_update"]
    facts = inquiry.result()
    assert facts["others_bytes"] == 416
    assert facts["others"][0] == {"name": "fp32 [10]", "bytes": 400, "num": 10}
    assert facts["memory"]["moment"] == "update"


@pytest.mark.usefixtures("make_probe")
def test_what_was_due_for_the_runs_own_probe_is_done() -> None:
    own = OwnProbe()
    own.due = "see_end"
    context = Context(own)
    MemoryInquiry(context).begin(Journal())  # type: ignore[arg-type]

    assert context.anatomy.count_update(None) == "see_end"
    context.anatomy.see_end()
    assert own.said == ["count_update", "see_end"]


@pytest.mark.usefixtures("make_probe")
def test_a_run_that_knows_its_memory_has_no_probe_afterwards() -> None:
    context = Context(None)
    inquiry = MemoryInquiry(context)  # type: ignore[arg-type]
    inquiry.begin(Journal())  # type: ignore[arg-type]
    inquiry.give_up()

    assert context.anatomy is None


@pytest.mark.usefixtures("make_probe")
@pytest.mark.parametrize("way", ["early", "counted", "followed"])
def test_it_keeps_out_of_the_way_of_what_is_examined_anyway(way: str) -> None:
    own, journal = OwnProbe(), Journal(OWN_UPDATES if way == "early" else 100)
    journal.probe = object() if way == "counted" else None
    own.storages = object() if way == "followed" else None
    context = Context(own)

    assert not MemoryInquiry(context).begin(journal)  # type: ignore[arg-type]
    assert context.anatomy is own


@pytest.mark.usefixtures("make_probe")
def test_a_probe_that_fails_has_no_answer() -> None:
    context = Context(OwnProbe())
    context.fails = True
    inquiry, journal = MemoryInquiry(context), Journal()  # type: ignore[arg-type]
    inquiry.begin(journal)  # type: ignore[arg-type]
    inquiry.end_update(journal, 0)  # type: ignore[arg-type]

    with pytest.raises(RefusedError, match="failed"):
        inquiry.result()


# -- work


class Plan:
    """A plan that counts two updates after somebody asked."""

    def __init__(self, *lines: dict[str, Any]) -> None:
        self.lines = list(lines)
        self.asker: Any = None
        self.is_free = True

    def ask(self, journal: Any, asker: Any) -> bool:
        self.asker = asker
        return self.is_free

    @property
    def is_asked(self) -> bool:
        return bool(self.lines)

    def count(self) -> None:
        self.asker(self.lines.pop(0))

    def forget_asker(self) -> None:
        self.asker = None


def test_the_lines_of_a_step_are_its_work() -> None:
    journal, inquiry = Journal(), CountInquiry()
    journal.plan = plan = Plan({"forward": 1}, {"forward": 2})
    assert inquiry.begin(journal)  # type: ignore[arg-type]
    for _ in range(2):
        inquiry.end_update(journal, 0)  # type: ignore[arg-type]
        assert not inquiry.is_over
        plan.count()
    inquiry.end_update(journal, 0)  # type: ignore[arg-type]

    assert inquiry.is_over
    assert inquiry.result() == {"updates": [{"forward": 1}, {"forward": 2}]}


@pytest.mark.parametrize(
    ("lines", "missing"),
    [([], "no_backward_seen"), ([{"forward": 1}, {"missing": "compiled"}], "compiled")],
)
def test_a_step_that_was_not_counted_has_a_reason(
    lines: list[dict[str, Any]], missing: str
) -> None:
    journal, inquiry = Journal(), CountInquiry()
    journal.plan = plan = Plan(*lines)
    inquiry.begin(journal)  # type: ignore[arg-type]
    for _ in lines:
        plan.count()

    with pytest.raises(RefusedError, match=missing):
        inquiry.result()


def test_a_thread_without_a_plan_refuses() -> None:
    with pytest.raises(RefusedError, match="other_thread"):
        CountInquiry().begin(Journal())  # type: ignore[arg-type]


# -- layers


class Look:
    """A probe of the layers that counts its updates by hand."""

    def __init__(self) -> None:
        self.is_on = False
        self.lines: list[str] = []
        self.device = SimpleNamespace(fetch=SimpleNamespace(waiting=[]))
        self.wanted: int | None = None

    def start(self, num_updates: int | None = None) -> None:
        self.is_on, self.wanted = True, num_updates

    def stop(self) -> None:
        self.is_on = False
        self.lines.append("cost")


class Probed:
    """A training whose layers are to be probed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, num_optimizers: int = 1) -> None:
        self.look, self.journal = Look(), Journal(100)
        monkeypatch.setattr(health_inquiry, "layer_look", lambda context: self.look)
        monkeypatch.setattr(health_inquiry, "is_compiling_at_all", lambda: self.compiles)
        self.compiles = False
        recorder = SimpleNamespace(journals=[self.journal], num_optimizers=num_optimizers)
        self.recorder = recorder
        question = make_question(what="health", num_steps=20)
        self.inquiry = HealthInquiry(SimpleNamespace(recorder=recorder), question)  # type: ignore[arg-type]

    def begin(self) -> bool:
        return self.inquiry.begin(self.journal)  # type: ignore[arg-type]

    def update(self) -> None:
        self.inquiry.end_update(self.journal, 0)  # type: ignore[arg-type]


def test_layers_are_probed_until_the_lines_are_on_the_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    training = Probed(monkeypatch, num_optimizers=2)
    assert training.begin()
    assert training.look.wanted == 40
    assert training.inquiry.is_recording
    training.update()
    training.look.stop()
    training.update()
    assert not training.inquiry.is_over
    training.look.lines.clear()  # the recorder has written them
    training.update()

    assert training.inquiry.is_over
    assert training.inquiry.result() == {"num_updates": 2}
    assert training.journal.num_disturbed == 2


@pytest.mark.parametrize("reason", ["compiled", "run_health", "other_thread"])
def test_layers_are_not_probed_where_that_would_change_something(
    monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    training = Probed(monkeypatch)
    training.compiles = reason == "compiled"
    training.look.is_on = reason == "run_health"
    if reason == "other_thread":
        training.recorder.journals = [Journal()]

    with pytest.raises(RefusedError, match=reason):
        training.begin()
    training.inquiry.give_up()
    assert training.look.lines == []  # a probe of the run's own goes on


def test_a_probe_that_nobody_waits_for_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Probed(monkeypatch)
    training.begin()
    training.inquiry.give_up()

    assert not training.look.is_on


# -- a profile


class Script:
    """A training that makes profilers of torch's classes, as it likes."""

    def __init__(self) -> None:
        class Kineto:
            def __init__(self) -> None:
                pass

        class Legacy:
            def __init__(self) -> None:
                pass

        self.classes = (Kineto, Legacy)
        self.originals = [one.__init__ for one in self.classes]  # type: ignore[misc]
        torch = SimpleNamespace(
            profiler=SimpleNamespace(_KinetoProfile=Kineto),
            autograd=SimpleNamespace(profiler=SimpleNamespace(profile=Legacy)),
        )
        self.switches = SimpleNamespace(is_profiled=False)
        context = SimpleNamespace(torch=torch, recorder=FakeRecorder(), switches=self.switches)
        self.journal = Journal(100)
        self.inquiry = ProfileInquiry(context, make_question(what="profile", num_steps=2))  # type: ignore[arg-type]
        self.tool = FakeTool()
        self.inquiry.window.tool = self.tool  # type: ignore[assignment]

    def begin(self) -> bool:
        return self.inquiry.begin(self.journal)  # type: ignore[arg-type]

    def steps(self, num: int) -> None:
        for _ in range(num):
            self.journal.num_updates += 1
            if not self.inquiry.is_over:
                self.inquiry.end_update(self.journal, 0)  # type: ignore[arg-type]

    @property
    def is_as_before(self) -> bool:
        found = [one.__init__ for one in self.classes]  # type: ignore[misc]
        return found == self.originals


def test_so_many_steps_are_recorded_as_were_asked_for() -> None:
    script = Script()
    assert script.begin()
    assert not script.is_as_before
    script.steps(12)

    said = [word for word in script.tool.said if word.startswith("step")]
    assert len(said) == 2
    facts = script.inquiry.result()
    assert (facts["steps"], facts["is_cut"]) == (2, False)
    assert facts["file"] == f"rank-0-asked-{ID}.pt.trace.json"
    assert script.is_as_before
    assert not script.switches.is_profiled
    assert script.journal.num_disturbed > 2


def test_a_profiler_of_the_scripts_own_comes_first() -> None:
    script = Script()
    script.begin()
    script.steps(4)
    script.classes[0]()
    script.steps(4)

    assert script.tool.said[-1] == "drop"
    with pytest.raises(RefusedError, match="own_profiler"):
        script.inquiry.result()
    assert script.is_as_before
    assert not script.switches.is_profiled


def test_a_profile_that_nobody_waits_for_is_dropped() -> None:
    script = Script()
    script.begin()
    script.steps(4)
    script.inquiry.give_up()

    assert script.tool.said[-1] == "drop"
    assert script.is_as_before


def test_a_run_with_a_profile_still_to_come_refuses() -> None:
    script = Script()
    profile: Any = SimpleNamespace(is_over=False, is_recording=False)
    script.journal.windows = SiteWindows(None, lambda: 0, profile=profile)  # type: ignore[arg-type]

    with pytest.raises(RefusedError, match="run_profile"):
        script.begin()
    assert script.is_as_before


def test_it_waits_while_updates_are_counted() -> None:
    script = Script()
    script.journal.plan = SimpleNamespace(is_clear=lambda number, last: number > 110)
    script.begin()
    script.steps(9)
    assert script.tool.said == []
    script.steps(9)
    assert script.inquiry.is_over
