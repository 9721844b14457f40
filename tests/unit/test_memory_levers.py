"""Levers on gradients and activations: dropped, not zeroed; kept, not computed twice."""

import pytest

from steptime.guest.hooks.patching import PATCHES, put_back
from steptime.guest.trial.looks.script_habits import ScriptHabits
from steptime.levers import load
from steptime.levers.base import Facts, Preserves
from steptime.testing.lever_session_double import PlainSession

torch = pytest.importorskip("torch")
checkpoint = pytest.importorskip("torch.utils.checkpoint").checkpoint

GIB = 1 << 30
CHECKPOINTED = {
    "checkpoint_ways": ("not_reentrant",),
    "checkpointed_bytes": GIB,
    "available_bytes": 4 * GIB,
}


def make_facts(**fields):
    return Facts(**({"torch_version": "2.13.0"} | fields))


@pytest.fixture
def session():
    with PlainSession(torch) as session:
        yield session


# --- no_checkpointing -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"checkpoint_ways": ()}, "checkpoints no activations"),
        ({"checkpoint_ways": ("unpreserved",)}, "keep no random states"),
        ({"checkpoint_ways": None}, "not observed"),
        ({"has_batch_statistics": True}, "updates twice"),
        ({"checkpointed_bytes": 3 * GIB}, "need about 3.0 GiB, and 4.0 GiB are free"),
        ({"checkpointed_bytes": None}, "not observed"),
        ({"device": "cuda"}, "not known"),
        ({"device": "cuda", "free_device_bytes": GIB}, "1.0 GiB are free"),
    ],
)
def test_checkpoints_stay_and_the_reason_is_said(fields, words):
    assert words in load("no_checkpointing").applies(make_facts(**(CHECKPOINTED | fields)))


def test_activations_that_fit_are_kept_and_the_class_goes_by_the_way():
    lever, reentrant = load("no_checkpointing"), {"checkpoint_ways": ("reentrant",)}

    assert lever.applies(make_facts(**CHECKPOINTED)) is None
    assert lever.class_here(make_facts(**CHECKPOINTED), {}) is Preserves.EXACT
    assert lever.class_here(make_facts(**(CHECKPOINTED | reentrant)), {}) is None


class Checkpointed:
    """A model with dropout, some of whose blocks are checkpointed; calls of blocks are counted."""

    def __init__(self, **how):
        torch.manual_seed(0)
        self.how = how
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.3)) for _ in range(3)
        )
        self.num_calls = 0

    def block(self, index):
        def run(x):
            self.num_calls += 1
            return self.blocks[index](x)

        return run

    def step(self):
        x = torch.ones(4, 8, requires_grad=True)
        for index in range(3):
            x = checkpoint(self.block(index), x, **self.how)
        x.square().sum().backward()
        gradients = [p.grad.tolist() for p in self.blocks.parameters()]
        return x.tolist(), gradients, torch.rand(3).tolist()


@pytest.mark.parametrize("reentrant", [False, True])
def test_blocks_run_once_with_the_same_random_numbers(session, reentrant):
    before = Checkpointed(use_reentrant=reentrant)
    expected = before.step()
    undo = load("no_checkpointing").apply({}, session)
    plain = Checkpointed(use_reentrant=reentrant)
    found = plain.step()
    undo()
    after = Checkpointed(use_reentrant=reentrant)

    assert found == expected == after.step()
    assert (before.num_calls, plain.num_calls, after.num_calls) == (6, 3, 6)


@pytest.mark.parametrize("reentrant", [False, True])
def test_calls_that_keep_no_random_states_move_them_as_before(session, reentrant):
    how = {"use_reentrant": reentrant, "preserve_rng_state": False}
    expected = Checkpointed(**how).step()
    undo = load("no_checkpointing").apply({}, session)
    own = Checkpointed(**how)

    assert own.step() == expected
    assert own.num_calls == 6
    undo()


def test_the_reentrant_way_follows_no_gradient_that_it_did_not_follow(session):
    """No input needs a gradient, or one is hidden in a list: its result has none."""
    weight = torch.ones(3, requires_grad=True)
    undo = load("no_checkpointing").apply({}, session)

    with pytest.warns(UserWarning, match="None of the inputs"):
        lost = checkpoint(lambda x: x * weight, torch.ones(3), use_reentrant=True)
    x = torch.ones(3, requires_grad=True)
    hidden = checkpoint(lambda x, held: x * held[0], x, [weight], use_reentrant=True)
    hidden.sum().backward()

    assert not lost.requires_grad
    assert weight.grad.tolist() == [1.0] * 3
    undo()


def test_an_error_of_the_scripts_function_is_the_scripts(session):
    undo = load("no_checkpointing").apply({}, session)

    def fail(x):
        raise KeyError("the script's")

    with pytest.raises(KeyError, match="the script's"):
        checkpoint(fail, torch.ones(1, requires_grad=True), use_reentrant=False)
    undo()


def test_contexts_of_the_scripts_are_entered(session):
    entered = []

    class Context:
        def __enter__(self):
            entered.append(1)

        def __exit__(self, *_):
            pass

    undo = load("no_checkpointing").apply({}, session)
    x = torch.ones(1, requires_grad=True)
    made = lambda: (Context(), Context())  # noqa: E731
    checkpoint(lambda x: x.sin().sin(), x, use_reentrant=False, context_fn=made).backward()

    assert entered == [1, 1]
    undo()


# --- what the guest sees of both --------------------------------------------------------


@pytest.fixture
def habits():
    num_before = len(PATCHES)
    book = ScriptHabits(torch, lambda: True)
    book.hook()
    yield book
    kept, PATCHES[:] = PATCHES[:num_before], PATCHES[num_before:]
    put_back()
    PATCHES[:] = kept


def test_zeros_are_seen_where_the_script_asks_for_them(habits):
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
    optimizer.zero_grad()
    assert habits.describe(1)["zeroes_gradients"] is False
    torch.nn.Linear(1, 1).zero_grad(set_to_none=False)

    assert habits.describe(1)["zeroes_gradients"] is True


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_are_seen_with_what_they_would_keep(habits, reentrant):
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8))
    for _ in range(2):
        x = torch.ones(4, 8, requires_grad=True)
        for _ in range(3):
            x = checkpoint(model, x, use_reentrant=reentrant)
        x.sum().backward()

    found = habits.describe(2)
    assert found["checkpoint_ways"] == ["reentrant" if reentrant else "not_reentrant"]
    assert found["checkpointed_bytes"] == 3 * 4 * (4 * 8 + 4 * 64)  # inputs and tanh's outputs


def test_counting_changes_no_bit():
    expected = [Checkpointed(use_reentrant=way).step() for way in (False, True)]
    for way, without in zip((False, True), expected, strict=True):
        num_before = len(PATCHES)
        habits = ScriptHabits(torch, lambda: True)
        habits.hook()
        try:
            assert Checkpointed(use_reentrant=way).step() == without
            assert habits.kept_bytes > 0
        finally:
            kept, PATCHES[:] = PATCHES[:num_before], PATCHES[num_before:]
            put_back()
            PATCHES[:] = kept
