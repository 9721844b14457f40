"""The time before the first step: what the guest notes of it, and what is made of the stretches."""

import pickle
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

import steptime  # noqa: E402
from steptime.guest.hooks.patching import PATCHES  # noqa: E402
from steptime.guest.sites.file_owners import FileOwners  # noqa: E402
from steptime.guest.sites.frames import Frames  # noqa: E402
from steptime.guest.timeline.recorder import Recorder  # noqa: E402
from steptime.guest.watchers.start_up import StartUp, StartUpWatcher, hook_libraries  # noqa: E402
from steptime.record.rows import MisshapenError, start_up  # noqa: E402

MS = 1_000_000


class Clock:
    """Advances by hand."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        return self.now

    def spend(self, ms):
        self.now += round(ms * MS)


@pytest.fixture
def seen(monkeypatch):
    """A start that is watched, its clock, and torch's own functions back at the end."""
    clock, num_before, load = Clock(), len(PATCHES), torch.load
    recorder = Recorder("/nowhere", dict)
    frames = Frames(FileOwners(torch))
    monkeypatch.setattr(frames.places, "owner", lambda file: 0 if file == __file__ else 2)
    times = SimpleNamespace(began_ns=0, rows=[], stop=lambda: None)
    watched = StartUp(recorder, frames, times, clock)
    StartUpWatcher(torch, recorder, watched)
    yield SimpleNamespace(start_up=watched, clock=clock, imports=times, recorder=recorder)
    torch.load = load
    while len(PATCHES) > num_before:
        owner, name, before, _ = PATCHES.pop()
        setattr(owner, name, before)


def parts(rows):
    return [(row[0], row[1] / MS, row[2] / MS) for row in rows]


class Net(torch.nn.Module):
    def __init__(self, clock):
        super().__init__()
        clock.spend(30)
        self.layer = torch.nn.Linear(2, 2)
        clock.spend(5)
        self.other = torch.nn.ReLU()


def test_what_comes_between_two_layers_is_the_model(seen):
    seen.clock.spend(10)
    Net(seen.clock)

    assert parts(seen.start_up.stop()) == [("model", 10, 45)]


def test_a_thousand_small_layers_are_one_stretch(seen):
    torch.nn.Linear(2, 2)
    for _ in range(1000):
        seen.clock.spend(0.01)
        torch.nn.ReLU()

    assert parts(seen.start_up.stop()) == [("model", 0, 10)]


def test_the_line_is_that_which_builds_the_model(seen):
    Net(seen.clock)
    line = sys._getframe().f_lineno - 1

    (row,) = seen.start_up.stop()
    assert row[4:] == [__file__, line]


def test_moving_and_loading_weights_is_the_model(seen):
    model = torch.nn.Linear(2, 2)
    seen.clock.spend(3)
    model.apply(lambda _: seen.clock.spend(20))
    seen.clock.spend(4)
    torch.optim.SGD(model.parameters(), lr=0.1)

    assert parts(seen.start_up.stop()) == [("model", 0, 27)]


def test_what_comes_before_a_loader_is_its_data_set(seen):
    torch.nn.Linear(2, 2)
    seen.clock.spend(50)
    data = torch.utils.data.TensorDataset(torch.zeros(4, 2))
    seen.clock.spend(7)
    torch.utils.data.DataLoader(data)

    assert parts(seen.start_up.stop()) == [("data_set", 0, 57)]


def test_what_comes_between_a_loader_and_a_model_is_neither(seen):
    torch.utils.data.DataLoader([1, 2])
    seen.clock.spend(50)
    torch.nn.Linear(2, 2)

    assert seen.start_up.stop() == []


def test_loading_is_timed_as_a_whole(seen, tmp_path):
    torch.save({"a": 1}, tmp_path / "a.pt")
    seen.clock.spend(9)

    class Unpickler(pickle.Unpickler):
        def load(self):
            seen.clock.spend(40)
            return super().load()

    slow = SimpleNamespace(__name__="slow", Unpickler=Unpickler, load=pickle.load)
    torch.load(tmp_path / "a.pt", pickle_module=slow, weights_only=False)

    assert parts(seen.start_up.stop()) == [("loading", 9, 49)]


def test_what_a_library_makes_is_a_data_set(seen):
    def load_dataset(name):
        seen.clock.spend(70)
        return name

    module = SimpleNamespace(load_dataset=load_dataset, load_from_disk=load_dataset)
    targets = {}
    hook_libraries(torch, seen.recorder, seen.start_up, targets)
    targets["datasets.load"](module)
    seen.clock.spend(5)
    assert module.load_dataset("text") == "text"
    targets["datasets.arrow_dataset"](SimpleNamespace())  # of a version without it

    assert parts(seen.start_up.stop()) == [("data_set", 5, 75)]
    assert seen.recorder.failures == {"start_up": 1}


def test_an_exception_passes_and_ends_the_call(seen):
    model = torch.nn.Linear(2, 2)

    def fail(_):
        seen.clock.spend(8)
        raise KeyError("theirs")

    with pytest.raises(KeyError) as caught:
        model.apply(fail)

    entries = [entry.frame.code.name for entry in caught.traceback]
    assert "wrapper" not in entries or sys.version_info < (3, 11)
    assert not seen.start_up.is_inside
    assert parts(seen.start_up.stop()) == [("model", 0, 8)]


def test_after_the_first_update_nothing_is_noted(seen):
    seen.start_up.stop()
    seen.clock.spend(10)
    Net(seen.clock)

    assert seen.start_up.rows == []


def test_another_thread_is_not_noted(seen):
    seen.start_up.thread = -1
    Net(seen.clock)

    assert seen.start_up.rows == []


def test_torchs_functions_keep_their_names(seen):
    assert pickle.loads(pickle.dumps(torch.load)) is torch.load
    assert torch.nn.Module.apply.__qualname__ == "Module.apply"
    file = torch.nn.Module.__init__.__code__.co_filename  # dynamo puts its own there
    assert Path(file).is_relative_to(Path(torch.__file__).parent)


def test_imports_are_rows_in_order_of_time(seen):
    seen.imports.rows.append(("numpy", 2 * MS, 5 * MS, "/x/train.py", 3))
    seen.clock.spend(10)
    torch.utils.data.DataLoader([1])

    rows = seen.start_up.stop()
    assert parts(rows) == [("data_set", 0, 10), ("imports", 2, 5)]
    assert rows[1][3:] == ["numpy", "/x/train.py", 3]


def test_the_line_is_written_once_on_the_clock_of_the_head(seen):
    watcher = StartUpWatcher(torch, seen.recorder, seen.start_up)
    seen.clock.spend(10)
    torch.utils.data.DataLoader([1])
    seen.recorder.zero_ns = 4 * MS

    assert watcher.poll(0, is_last=False) == ""  # no update yet
    seen.recorder.num_updates = 1
    text = watcher.poll(0, is_last=False)
    assert '"k": "su"' in text
    assert f'["data_set", {-4 * MS}, {6 * MS}, ""' in text
    assert watcher.poll(0, is_last=True) == ""


@pytest.mark.parametrize("row", [[1, 2], ["imports", 0, 1, "a", "f", "3"], None, [1] * 6])
def test_a_row_of_another_shape_is_refused(row):
    with pytest.raises(MisshapenError):
        start_up({"k": "su", "rows": [row]})


def test_an_import_that_a_library_makes_late_stands_at_the_line_outside_of_libraries(monkeypatch):
    site = Path(steptime.__file__).parent / "inject" / "site" / "sitecustomize.py"
    monkeypatch.setattr(sys, "path", list(sys.path))
    place = runpy.run_path(str(site), run_name="tried")["_ImportTimes"]()._place
    library, script = "/env/lib/site-packages/torch/_compile.py", "/home/me/train.py"

    def called(*files):
        frames = None
        for line, file in enumerate(files, start=1):
            code = SimpleNamespace(co_filename=file)
            frames = SimpleNamespace(f_code=code, f_lineno=line, f_back=frames)
        return place(frames)

    assert called(script, library, library, "<frozen importlib._bootstrap>") == (script, 1)
    assert called(script, script, library) == (script, 2)
    assert called("<frozen runpy>", library, library) == (library, 3)
    assert called(script, "<string>") == (None, None)
