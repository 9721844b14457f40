"""Where watching costs too much, the watch rests: every step counts, and no event is lost."""

import gc
from types import SimpleNamespace

import pytest

from steptime.guest.timeline import watch_budget
from steptime.guest.timeline.acts import LEAVE
from steptime.guest.timeline.watch_budget import BURST, WatchBudget
from steptime.levers.tools.forked_copy import do_apart
from steptime.measure.fold.stream import read_stream
from steptime.measure.steps.phases import find_missing, summarize_phases
from steptime.measure.steps.steady_window import series_of, window_of
from steptime.measure.steps.step_fold import fold_stream
from steptime.record import files
from steptime.record.buckets import OTHER
from steptime.record.places import DETAIL, RESTED

torch = pytest.importorskip("torch")

from steptime.guest.bootstrap import enter, finish  # noqa: E402
from steptime.guest.modes.mode import GuestMode  # noqa: E402


def budget_of(step_ns, cost_ns, switch_ns=0.0):
    budget = WatchBudget()
    budget.step_ns, budget.cost_ns, budget.switch_ns = step_ns, cost_ns, switch_ns
    return budget


@pytest.mark.parametrize("step_ns", [3e5, 1e6, 1e7])
def test_watching_and_resting_together_stay_below_a_hundredth(step_ns):
    cost_ns, switch_ns = 100_000, 200_000
    burst, rest_ns = budget_of(step_ns, cost_ns, switch_ns).plan(0)
    spent_ns = burst * cost_ns + switch_ns + rest_ns / step_ns * 2_000
    assert spent_ns <= 0.0125 * (burst * step_ns + rest_ns)


def test_long_steps_are_all_watched():
    assert budget_of(1e8, 100_000).plan(0) == (BURST, 0)


def test_rests_grow_with_the_run_and_bursts_with_them():
    short, long = (budget_of(1e6, 100_000).plan(int(at * 1e9)) for at in (1, 3600))
    assert long[1] == pytest.approx(3600e9 / 25)
    assert long[0] / short[0] == pytest.approx(long[1] / short[1], rel=0.05)


class Loop:
    """A short training in a copy of this process, which says what it did itself."""

    def __init__(self):
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
        self.optimizers = [torch.optim.SGD(self.model.parameters(), lr=0.01)]

    def step(self, optimizer=0):
        self.model(torch.ones(2, 8)).sum().backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizers[optimizer].step()
        self.optimizers[optimizer].zero_grad()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        for _ in range(2):
            self.model(torch.ones(2, 8))
        self.model.train()


def steps_of(run, act):
    """The steps of a training under the guest; its CPU cost is made up to be high."""
    run.mkdir()

    def train() -> dict:
        gc.freeze()
        context = enter(torch, str(run), GuestMode(), {})
        loop = Loop()
        seen: dict = act(loop, SimpleNamespace(context=context, at=lambda: context.journal.resting))
        finish(context, lambda: None)
        return {"seen": seen, "failures": context.recorder.failures}

    said = do_apart(train, limit_s=120)
    assert said["failures"] == {}
    stream = read_stream(run / files.rank_file(0), SimpleNamespace(count=0))
    return said["seen"], stream, fold_stream(stream)


def test_every_step_counts_and_those_of_a_rest_have_a_time_alone(tmp_path):
    def act(loop, guest):
        original = torch.nn.Module.__call__
        for _ in range(3000):
            loop.step()
        return {
            "is_out": torch.nn.Module.__call__ is not original,
            "is_late": guest.at().is_resting,
        }

    seen, stream, steps = steps_of(tmp_path / "run", act)
    assert seen == {"is_out": True, "is_late": True}
    assert steps.num_steps == steps.num_updates == 3000
    rested = sum(one.num_updates for one in stream.rested)
    assert 500 <= steps.num_watched == 3000 - rested < 1500
    assert stream.updates.column(DETAIL).count(RESTED) == rested
    assert steps.total("backwards") == 3000
    assert all(time_s > 0 for time_s in steps.steps.times_s)
    sums = [sum(one.times_us) * 1000 - (one.end_ns - one.start_ns) for one in stream.rested]
    assert max(map(abs, sums)) <= 1000
    # The watched steps took longer, and divide the usual one all the same.
    window = window_of(steps, series_of(steps))
    phases = summarize_phases([window], find_missing([steps], has_workers=False))
    assert window.is_sample
    assert sum(one.mean_s or 0.0 for one in phases) == pytest.approx(window.steady.mean_s)


def test_an_evaluation_ends_a_rest_and_is_kept_apart(tmp_path):
    def act(loop, guest):
        num = 0
        for number in range(3000):
            loop.step()
            if number % 100 == 99:
                num += guest.at().is_resting
                loop.evaluate()
        return {"num": num}

    seen, _, steps = steps_of(tmp_path / "run", act)
    assert seen["num"] > 10
    assert sum(span > 0 for span in steps.steps.span("evaluation")) == 29  # the last has no step
    assert steps.num_steps == 3000


def test_turns_of_two_optimizers_go_on_and_a_new_order_is_seen(tmp_path):
    def act(loop, guest):
        loop.optimizers.append(torch.optim.Adam(loop.model.parameters()))
        for number in range(4000):
            loop.step(number % 2 if number < 3500 else 1)
        return {}

    _, stream, steps = steps_of(tmp_path / "run", act)
    assert steps.num_updates == 4000
    made = list(stream.updates.of_thread(0).column(2))
    assert made[1001:3501] == [0, 1] * 1250  # the first row is a backward call's
    assert made[3501:] == [1] * 500


def test_where_rests_end_at_once_the_watch_goes_on_as_usual(tmp_path):
    def act(loop, guest):
        for _ in range(2000):
            loop.step()
            guest.context.journal.note(OTHER, OTHER)  # something else in each step
            guest.context.journal.note(LEAVE, OTHER)
        return {"is_over": guest.at().is_over}

    seen, _, steps = steps_of(tmp_path / "run", act)
    assert seen == {"is_over": True}
    assert steps.num_steps == 2000
    assert sum(steps.steps.is_detailed[1000:]) == pytest.approx(1000 / 8, abs=20)
    assert min(steps.steps.cpu_times_s) >= 0


def test_after_twenty_thousand_updates_rests_are_blocks(tmp_path, monkeypatch):
    for module in ("fold.stream", "steps.step_blocks"):
        monkeypatch.setattr(f"steptime.measure.{module}.FULL_UPDATES", 1000)

    def act(loop, guest):
        guest.context.recorder.full_updates = 1000
        watch_budget.TARGET = 0.1  # so that there are several rests
        for _ in range(4000):
            loop.step()
        return {}

    _, _, steps = steps_of(tmp_path / "run", act)
    assert steps.num_steps == 4000
    assert {block.has_phases for block in steps.blocks} == {True, False}


def test_a_skipped_update_is_counted_while_the_watch_rests(tmp_path):
    def act(loop, guest):
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=10_000)
        num = 0
        for number in range(2000):
            loss = loop.model[0](torch.ones(2, 8)).sum() * (1e40 if number == 1500 else 1.0)
            scaler.scale(loss).backward()
            num += guest.at() is not None and guest.at().is_resting
            scaler.step(loop.optimizers[0])
            scaler.update()
            loop.optimizers[0].zero_grad()
        return {"num": num}

    seen, _, steps = steps_of(tmp_path / "run", act)
    assert seen["num"] > 500
    assert (steps.num_updates, steps.num_skipped) == (2000, 1)
