"""The lever `weight_averaging`: evaluation reads averages, and the training stays what it was."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")
swa_utils = pytest.importorskip("torch.optim.swa_utils")

from steptime.levers import load  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402
from steptime.testing.training import Training  # noqa: E402

LEVER = load("weight_averaging")
DECAY = 0.4  # the first step's warm-up allows no more than 2/11, so steps differ


@pytest.fixture
def session():
    with PlainSession(torch) as session:
        yield session


@pytest.fixture
def averaging(session):
    undo = LEVER.apply({"decay": DECAY}, session)
    yield session
    undo()


def state(model):
    return {name: one.clone() for name, one in model.state_dict().items()}


def differing(one, other):
    return [name for name in one if not torch.equal(one[name], other[name])]


def averaged_by_torch(num_steps):
    """The state of torch's own averaged model, with our warm-up of the decay."""
    training, average = Training(torch), None
    for number in range(1, num_steps + 1):
        training.steps(1)
        decay = min(DECAY, (1 + number) / (10 + number))
        if average is None:
            average = swa_utils.AveragedModel(training.model, use_buffers=True)
        average.multi_avg_fn = swa_utils.get_ema_multi_avg_fn(decay)
        average.update_parameters(training.model)
    return average.module.state_dict()


def evaluate(training):
    training.model.eval()
    with torch.no_grad():
        out = training.model(training.images)
    found = state(training.model)
    training.model.train()
    return found, out


def test_evaluation_reads_torchs_average_and_the_training_stays_bit_for_bit(averaging):
    plain, training = Training(torch), Training(torch)
    losses = training.steps(6)
    own = state(training.model)
    average, _ = evaluate(training)

    assert not differing(own, training.model.state_dict())
    expected = averaged_by_torch(6)
    for name, one in average.items():
        if one.is_floating_point():
            torch.testing.assert_close(one, expected[name])
    assert {*own} - {*differing(average, own)} == {"1.num_batches_tracked"}
    assert losses + training.steps(3) == plain.steps(9)
    assert averaging.counts["entered_evaluation"] == 1


def test_twice_eval_and_twice_train_are_once(averaging):
    training = Training(torch)
    training.steps(4)
    own = state(training.model)
    training.model.eval()
    average = state(training.model)
    training.model.eval()
    assert not differing(average, state(training.model))
    training.model.train()
    training.model.train()
    assert not differing(own, state(training.model))


def test_a_script_that_trains_in_evaluation_mode_trains_its_own_weights(averaging):
    def train():
        training = Training(torch)
        losses = training.steps(3)
        training.model.eval()
        return losses + training.steps(3), training

    found, training = train()
    training.model.eval()  # from here on it is left alone
    own = state(training.model)
    training.model.train()
    assert not differing(own, state(training.model))
    assert averaging.counts["called_with_gradients_in_evaluation"] == 1
    plain = Training(torch)
    expected = plain.steps(3)
    plain.model.eval()
    assert found == expected + plain.steps(3)


def test_a_part_that_is_frozen_by_eval_keeps_its_weights(averaging):
    training = Training(torch)
    training.steps(3)
    own = state(training.model)
    training.model[1].eval()  # a batch norm that no longer learns its statistics

    assert not differing(own, state(training.model))


def test_a_checkpoint_that_is_read_during_evaluation_stays(averaging):
    training = Training(torch)
    training.steps(3)
    best = copy.deepcopy(training.model.state_dict())
    training.steps(3)
    training.model.eval()
    training.model.load_state_dict(best)
    training.model.train()

    assert not differing(best, state(training.model))
    training.steps(1)
    assert evaluate(training)


def test_a_wrapped_model_is_averaged_by_either_name(averaging):
    training = Training(torch)
    inner = training.model
    training.model = torch.nn.Sequential(inner)
    training.steps(4)
    own = state(inner)
    inner.eval()
    average = state(inner)
    inner.train()

    assert differing(own, average)
    assert not differing(own, state(inner))


def test_taken_off_in_the_middle_of_an_evaluation_the_own_weights_are_back(session):
    train = torch.nn.Module.train
    undo = LEVER.apply({"decay": DECAY}, session)
    training = Training(torch)
    training.steps(3)
    own = state(training.model)
    training.model.eval()
    assert differing(own, state(training.model))
    undo()

    assert not differing(own, state(training.model))
    assert torch.nn.Module.train is train
