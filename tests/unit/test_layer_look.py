"""What a look at the layers finds, when it can be switched on and off, and what it leaves alone."""

from __future__ import annotations

import gc
import json
import math
import pickle
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from steptime.guest.frameworks.torch.layer_hooks import make_layer_look
from steptime.guest.health.first_bad import MAX_BRACKETS
from steptime.guest.health.layer_look import LayerLook
from steptime.guest.sites.file_owners import USERS
from steptime.guest.sites.frames import Frames
from steptime.guest.timeline.recorder import Recorder
from steptime.record.buckets import FORWARD, OTHER

torch = pytest.importorskip("torch")
nn = torch.nn


class Owners:
    """This file is the user's."""

    @staticmethod
    def owner(file: str) -> int | None:
        return USERS if file == __file__ else None


class Losses:
    """Numbers updates from 1; `bad_value` is what a test says."""

    bad_value: str | None = None
    num = 0

    def number_of(self, optimizer: int) -> int:
        return self.num + 1


class Training:
    """Calls a model as the hooks show it, one update after the other."""

    def __init__(self, look: LayerLook, journal: Any, recorder: Recorder) -> None:
        self.look = look
        self.journal = journal
        self.recorder = recorder
        self.losses = journal.losses

    def call(self, model: Any, *args: Any) -> Any:
        self.journal.top = FORWARD
        try:
            return model(*args)
        finally:
            self.journal.top = OTHER

    def update(self, model: Any, *args: Any, bad: str | None = None, skipped: int = 0) -> None:
        result = self.call(model, *args)
        for tensor in result if isinstance(result, tuple) else (result,):
            if tensor.requires_grad:
                tensor.sum().backward(retain_graph=True)
        self.end(bad=bad, skipped=skipped)

    def end(self, *, bad: str | None = None, skipped: int = 0) -> None:
        self.losses.bad_value = bad
        if self.recorder.layers is not None:
            self.recorder.layers.end_update(self.losses, 0, skipped)
        self.losses.num += 1
        self.losses.bad_value = None

    def brackets(self) -> list[dict[str, Any]]:
        lines = map(json.loads, self.look.poll(OTHER, is_last=True).splitlines())
        assert self.recorder.failures == {}
        return [line for line in lines if line["k"] == "br"]


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Training]:
    torch.manual_seed(0)
    recorder = Recorder(str(tmp_path), lambda: {"rank": 0})
    journal = SimpleNamespace(top=OTHER, losses=Losses())
    recorder.journals.append(journal)

    def guarded(place: str, act: Callable[..., None], *args: Any) -> None:
        act(*args)

    context: Any = SimpleNamespace(
        torch=torch,
        recorder=recorder,
        layers=None,
        frames=Frames(Owners()),  # type: ignore[arg-type]
        local=SimpleNamespace(journal=journal),
        guarded=guarded,
    )
    look = make_layer_look(context)
    try:
        yield Training(look, journal, recorder)
    finally:
        look.stop()


class Chain(nn.Module):
    """Three layers; `spoil` does something to what lies between the first two."""

    def __init__(self, spoil: Callable[[Any], Any] = lambda x: x) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))
        self.third = nn.Linear(3, 2)
        self.spoil = spoil

    def forward(self, x: Any) -> Any:
        return self.third(self.second(self.spoil(self.first(x))))


class BadGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
        return gradient * math.nan


def nan_in_row_2(x: Any) -> Any:
    return torch.cat([x[:2], x[2:3] * math.nan, x[3:]])


def ones() -> Any:
    return torch.ones(4, 3)


def named(module: dict[str, Any] | None) -> str | None:
    return None if module is None else module["name"]


# -- what is found


def test_between_two_modules(train: Training) -> None:
    train.look.start()
    train.update(Chain(), ones())
    train.update(Chain(nan_in_row_2), ones(), bad="loss")

    (bracket,) = train.brackets()
    side = bracket["forward"]
    assert (bracket["n"], side["at"], side["is_nan"]) == (2, "input", True)
    assert (named(side["module"]), named(side["after"])) == ("second.0", "first")
    assert (side["rows"], side["num_bad_rows"], side["num_rows"]) == ([2], 1, 4)
    assert side["file"] == __file__


def test_in_a_module_whose_input_and_weights_are_finite(train: Training) -> None:
    model = Chain()
    with torch.no_grad():
        model.second[0].weight.fill_(3e38)
    train.look.start()
    train.update(model, 10 * ones(), bad="loss")

    side = train.brackets()[0]["forward"]
    assert (side["at"], named(side["module"])) == ("output", "second.0")
    assert side["largest_weight"] == pytest.approx(3e38)
    assert 0 < side["largest_input"] < 100


def test_a_weight_is_bad_before_the_call(train: Training) -> None:
    model = Chain()
    with torch.no_grad():
        model.third.bias[0] = math.inf
    train.look.start()
    train.update(model, ones(), bad="loss")

    (bracket,) = train.brackets()
    side = bracket["forward"]
    assert (side["at"], side["weights"], side["is_nan"]) == ("weight", ["bias"], False)
    assert named(side["module"]) == "third"
    assert (bracket["num_bad_weights"], bracket["bad_weights"]) == (1, ["third.bias"])


def test_the_batch_itself_is_bad(train: Training) -> None:
    x = ones()
    x[1, 0] = math.inf
    train.look.start()
    train.update(Chain(), x, bad="loss")

    side = train.brackets()[0]["forward"]
    assert (side["at"], named(side["module"]), side["rows"]) == ("argument", "", [1])
    assert side["is_nan"] is False


def test_every_module_is_sound_and_the_loss_is_not(train: Training) -> None:
    train.look.start()
    train.update(Chain(), ones(), bad="loss")

    side = train.brackets()[0]["forward"]
    assert (side["at"], named(side["after"])) == ("loss", "third")


def test_a_gradient_between_two_modules(train: Training) -> None:
    train.look.start()
    train.update(Chain(BadGradient.apply), ones())

    (bracket,) = train.brackets()
    side = bracket["backward"]
    assert bracket["forward"] is None
    assert (side["at"], named(side["module"]), named(side["after"])) == (
        "gradient",
        "first",
        "second.0",
    )
    assert bracket["num_bad_gradients"] == 2
    assert bracket["bad_gradients"] == ["first.weight", "first.bias"]


def test_a_script_that_stops_before_the_update_ends(train: Training) -> None:
    train.look.start()
    train.update(Chain(), ones())
    train.call(Chain(nan_in_row_2), ones())
    train.losses.bad_value = "loss"

    (bracket,) = train.brackets()
    assert (bracket["n"], bracket["is_open"]) == (2, True)
    assert named(bracket["forward"]["module"]) == "second.0"


# -- what is no bad number


def test_infinities_that_do_no_harm_are_learned(train: Training) -> None:
    masked = nn.Sequential(nn.Linear(3, 3), Mask())
    train.look.start()
    for _ in range(4):
        result = train.call(masked, ones()).softmax(-1).sum()
        result.backward()
        train.end()
    assert train.brackets() == []

    train.update(nn.Sequential(*masked, Chain(nan_in_row_2)), ones(), bad="loss")
    assert len(train.brackets()) == 1


class Mask(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.masked_fill(torch.tensor([True, False, False]), -math.inf)


def test_an_episode_is_told_once_and_not_for_ever(train: Training) -> None:
    sound, broken = Chain(), Chain(nan_in_row_2)
    train.look.start()
    for _ in range(MAX_BRACKETS + 3):
        train.update(broken, ones(), bad="loss")
        train.update(broken, ones(), bad="loss")
        train.update(sound, ones())

    found = train.brackets()
    assert len(found) == MAX_BRACKETS
    assert [one["n"] for one in found[:3]] == [1, 4, 7]


# -- on and off


def test_it_starts_between_two_updates_and_stops_by_itself(train: Training) -> None:
    original = nn.Module._call_impl
    broken = Chain(nan_in_row_2)
    train.update(broken, ones(), bad="loss")
    train.look.start(num_updates=2)
    assert nn.Module._call_impl is not original
    for _ in range(3):
        train.update(Chain(), ones())

    assert not train.look.is_on
    assert nn.Module._call_impl is original
    (cost,) = [json.loads(line) for line in train.look.pop().splitlines()]
    assert (cost["k"], cost["since"], cost["updates"]) == ("hc", 2, 2)
    assert cost["ns"] > 0

    train.look.start(num_updates=1)
    train.update(broken, ones(), bad="loss")
    (bracket, cost) = [json.loads(line) for line in train.look.pop().splitlines()]
    assert (bracket["n"], cost["updates"]) == (5, 3)


def test_another_patch_on_top_of_ours_stays(train: Training) -> None:
    original = nn.Module._call_impl
    train.look.start()
    ours = nn.Module._call_impl

    def theirs(self: Any, *args: Any, **kwargs: Any) -> Any:
        return ours(self, *args, **kwargs)

    nn.Module._call_impl = theirs
    try:
        train.look.stop()
        assert nn.Module._call_impl is theirs
        train.update(Chain(nan_in_row_2), ones(), bad="loss")
        assert train.brackets() == []
    finally:
        nn.Module._call_impl = original


# -- what it leaves alone


def test_nothing_is_attached_or_kept(train: Training) -> None:
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)), ones()
    train.look.start()
    before = pickle.dumps(model)
    y = train.call(model, x)
    references = [weakref.ref(model), weakref.ref(x), weakref.ref(y)]
    assert y._backward_hooks is None
    assert pickle.dumps(model) == before
    y.sum().backward()
    train.end()

    del model, x, y
    gc.collect()
    assert [reference() for reference in references] == [None, None, None]


def test_the_users_modes_see_nothing_of_it(train: Training) -> None:
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Functions(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    def seen_in(model: Any) -> list[str]:
        seen.clear()
        with Functions(), Operators():
            train.call(model, ones()).sum().backward()
        return list(seen)

    torch.manual_seed(0)
    bare = seen_in(Chain(nan_in_row_2))
    train.look.start()
    torch.manual_seed(0)
    assert seen_in(Chain(nan_in_row_2)) == bare
    train.end(bad="loss")
    (bracket,) = train.brackets()
    assert bracket["forward"]["at"] == "input"


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_transform_and_a_trace_are_passed_over(train: Training) -> None:
    model = Chain()
    parameters = dict(model.named_parameters())
    bare = torch.jit.trace(model, ones())
    train.look.start()
    train.journal.top = FORWARD
    each = torch.func.vmap(lambda x: torch.func.functional_call(model, parameters, (x,)))(ones())
    traced = torch.jit.trace(model, ones())
    train.journal.top = OTHER

    assert each.shape == (4, 2)
    kinds = [[node.kind() for node in one.inlined_graph.nodes()] for one in (bare, traced)]
    assert kinds[0] == kinds[1]
    assert train.look.missing["not_plain"] > 0


def test_an_error_of_the_users_passes_as_it_is(train: Training) -> None:
    import traceback

    def fail(x: Any) -> Any:
        raise ValueError("theirs")

    def lines() -> list[str]:
        with pytest.raises(ValueError, match="theirs") as caught:
            train.call(Chain(fail), ones())
        return [
            f"{f.filename}:{f.lineno}" for f in traceback.extract_tb(caught.value.__traceback__)
        ]

    bare = lines()
    train.look.start()
    assert lines() == bare
    assert train.look.depth == 0


# -- samples


@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.slow("processes"))])
def test_the_samples_are_those_that_the_sampler_drew(train: Training, num_workers: int) -> None:
    class Numbers(torch.utils.data.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return 12

        def __getitem__(self, number: int) -> Any:
            return torch.full((3,), math.nan if number == 7 else float(number))

    train.look.start()
    loader = torch.utils.data.DataLoader(
        Numbers(), batch_size=4, shuffle=True, num_workers=num_workers
    )
    model, truth = Chain(), []
    iterator = iter(loader)
    for _ in range(3):
        batch = next(iterator)
        train.look.see_batch(iterator, batch)
        is_bad = bool(batch.isnan().any())
        if is_bad:
            truth = [0 if row.isnan().any() else int(row[0]) for row in batch]
        train.update(model, batch, bad="loss" if is_bad else None)

    (bracket,) = train.brackets()
    side = bracket["forward"]
    assert [side["samples"][row] for row in side["rows"]] == [7]
    assert [0 if one == 7 else one for one in side["samples"]] == truth


def test_a_batch_that_is_fetched_ahead_is_known_by_its_memory(train: Training) -> None:
    train.look.start()
    data = torch.utils.data.TensorDataset(torch.arange(24.0).reshape(8, 3))
    iterator = iter(torch.utils.data.DataLoader(data, batch_size=2))
    batches = []
    for _ in range(2):
        batches.append(next(iterator))
        train.look.see_batch(iterator, batches[-1])
    train.update(Chain(lambda x: x * math.nan), batches[0][0], bad="loss")
    assert train.brackets()[0]["forward"]["samples"] == [0, 1]


def test_a_copied_batch_among_several_is_not_guessed(train: Training) -> None:
    train.look.start()
    data = torch.utils.data.TensorDataset(torch.arange(24.0).reshape(8, 3))
    iterator = iter(torch.utils.data.DataLoader(data, batch_size=2))
    for _ in range(2):
        train.look.see_batch(iterator, next(iterator))
    train.update(Chain(nan_in_row_2), ones(), bad="loss")

    side = train.brackets()[0]["forward"]
    assert (side["samples"], side["samples_missing"]) == (None, "several_batches")
