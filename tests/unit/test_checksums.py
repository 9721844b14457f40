"""Checksums and samples of tensors, and the runs that are made different on purpose."""

from __future__ import annotations

from collections import UserDict
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from steptime.guest.quality.apart_from_padding import ApartFromPadding  # noqa: E402
from steptime.guest.quality.checksums import crc_of, leaves, sample, sum_of_samples, width_for  # noqa: E402
from steptime.guest.quality.quality_batches import Batches, sums_of_index  # noqa: E402
from steptime.guest.quality.variants import DoublePrecision, Perturbation, own_seed, seed_numpy  # noqa: E402


def test_the_same_values_in_another_memory_format_are_the_same():
    batch = torch.randn(2, 3, 4, 4)

    assert crc_of(batch) == crc_of(batch.to(memory_format=torch.channels_last))
    assert crc_of(batch) != crc_of(batch.double())
    assert crc_of(batch) != crc_of(batch + 1e-7)


@dataclass
class Sample:
    image: Any
    label: int


def test_a_batch_is_looked_into_whatever_it_is_made_of():
    one = torch.ones(2)
    batch = {"a": [one, (1, "word")], "b": UserDict(c=b"bytes"), "d": Sample(one, 3), "e": None}

    assert [type(leaf) for leaf in leaves(batch)] == [type(one), int, str, bytes, type(one), int]
    assert crc_of(batch) != crc_of({**batch, "d": Sample(one, 4)})


def test_a_batch_that_holds_itself_comes_to_an_end():
    batch: list[Any] = [torch.ones(1)]
    batch.append(batch)

    assert len(list(leaves(batch))) < 10


def test_samples_are_told_apart_but_not_their_order():
    inputs, labels = torch.arange(8.0).view(4, 2), torch.arange(4)
    order = torch.tensor([2, 0, 3, 1])

    assert sum_of_samples((inputs, labels)) == sum_of_samples((inputs[order], labels[order]))
    assert sum_of_samples((inputs, labels)) != sum_of_samples((inputs, labels.roll(1)))
    assert sum_of_samples(("words",)) == (0, -1)


def test_numbers_of_samples_have_a_sum_whatever_their_order():
    assert sums_of_index([3, 1, 2])[1] == sums_of_index([1, 2, 3])[1]
    assert sums_of_index([3, 1, 2])[0] != sums_of_index([1, 2, 3])[0]
    assert sums_of_index(None) == (-1, -1)


def test_a_large_tensor_is_sampled_at_an_even_stride():
    values, counts = sample(torch, [torch.arange(10_000.0), torch.ones(3)], 4096)

    assert counts == [3334, 3]
    assert values[:3].tolist() == [0, 3, 6]
    assert values.dtype == torch.float64


def test_many_tensors_are_sampled_thinly():
    assert (width_for(10), width_for(1000), width_for(10**6)) == (4096, 1000, 16)


def test_a_loader_is_known_by_batches_numbers_and_the_end_of_its_pass():
    class Iterator:
        _dataset = object()

    batches, iterator = Batches(ApartFromPadding(torch)), Iterator()
    for index in ([0, 1], [2, 3]):
        batches.take_index(iterator, index)
    for number in (0, 1):
        batches.take_batch(iterator, torch.full((2, 2), float(number)))
    batches.end_epoch(iterator)

    assert [row[3] for row in batches.fed] == [sums_of_index(i)[0] for i in ([0, 1], [2, 3])]
    assert [row[5] for row in batches.fed] == [2, 2]
    (epoch,) = batches.epochs
    assert (epoch[1], epoch[4]) == (2, 4)


# -- apart from padding


def make_batch(lengths: list[int], width: int) -> dict[str, Any]:
    mask = (torch.arange(width) < torch.tensor(lengths)[:, None]).long()
    return {"input_ids": torch.arange(2, width + 2) * mask, "attention_mask": mask}


def fed(batch: Any, *calls: Any) -> list[int]:
    """The checksums of a batch, and of calls that are made with it, apart from padding."""
    apart = ApartFromPadding(torch)
    return [crc_of(apart.cut(batch)), *map(apart.crc_of_call, calls)]


def test_a_batch_and_calls_are_the_same_however_wide_they_are_padded():
    def with_calls(width: int) -> list[int]:
        batch = make_batch([2, 5], width)
        ids, mask = batch.values()
        return fed(
            batch,
            ((), batch),
            ((ids,), {}),
            ((ids[:, :-1],), {"mask": mask[:, None, None, :]}),
            ((torch.arange(width),), {"features": torch.ones(2, 3)}),
        )

    assert with_calls(64) == with_calls(5) == with_calls(8)


def test_a_batch_that_lacks_a_token_is_another_one():
    batch = make_batch([2, 5], 64)
    short = {name: tensor[:, :4] for name, tensor in batch.items()}

    assert fed(batch) != fed(short)
    assert fed(batch) != fed({**batch, "input_ids": batch["input_ids"] + 1})


# -- variants


def test_weights_are_changed_by_their_last_bits_and_taken_back():
    model = torch.nn.Linear(64, 64)
    before, state = model.weight.detach().clone(), torch.get_rng_state()
    version = model.weight._version
    perturbation = Perturbation(torch, 2.0**-8, seed=1)

    perturbation.enter(model)
    change = (model.weight.detach() / before - 1).abs()
    perturbation.leave()

    assert 2.0**-10 < float(change.mean()) < 2.0**-8
    assert float(change.max()) <= 2.0**-8 * 1.01
    assert torch.equal(model.weight, before)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.weight._version == version


def test_one_last_bit_of_float32_reaches_a_third_of_the_weights():
    model = torch.nn.Linear(256, 256)
    before = model.weight.detach().clone()

    Perturbation(torch, 2.0**-24, seed=1).enter(model)

    assert 0.1 < float((model.weight != before).float().mean()) < 0.5


def test_the_draws_are_new_each_time_and_the_same_with_the_same_seed():
    def draw(seed: int, times: int) -> Any:
        model, perturbation = torch.nn.Linear(8, 8, bias=False), Perturbation(torch, 0.1, seed)
        model.weight.data.fill_(1.0)
        for _ in range(times):
            perturbation.leave()
            perturbation.enter(model)
        return model.weight.detach().clone()

    assert torch.equal(draw(1, 2), draw(1, 2))
    assert not torch.equal(draw(1, 2), draw(1, 1))
    assert not torch.equal(draw(1, 1), draw(2, 1))


def test_floating_inputs_become_float64_and_others_stay():
    double = DoublePrecision(torch, fail=lambda place: None)

    inputs, (mask, text), named = double.convert(
        [torch.ones(1), (torch.ones(1, dtype=torch.bool), "word"), {"x": torch.ones(1).half()}]
    )

    assert (inputs.dtype, mask.dtype, text) == (torch.float64, torch.bool, "word")
    assert named["x"].dtype == torch.float64


def test_optimizer_state_becomes_float64_but_its_step_counts_stay():
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([weight])
    weight.grad = torch.ones(2)
    optimizer.step()

    DoublePrecision(torch, fail=lambda place: None).convert_state(optimizer)

    state = optimizer.state[weight]
    assert (state["exp_avg"].dtype, state["step"].dtype) == (torch.float64, torch.float32)


def test_each_rank_has_a_seed_of_its_own(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("RANK", raising=False)
    assert own_seed(5) == 5

    monkeypatch.setenv("RANK", "3")
    assert own_seed(5) == 8


def test_generators_without_a_seed_repeat_themselves_in_a_judged_run(monkeypatch):
    numpy = pytest.importorskip("numpy")
    source = numpy.random.bit_generator
    monkeypatch.setattr(source, "randbits", source.randbits)  # what `seed_numpy` replaces
    state = numpy.random.get_state()

    def draws(seed):
        seed_numpy(numpy, seed)
        return [numpy.random.default_rng().random() for _ in range(2)]

    first, again, other = draws(5), draws(5), draws(6)
    numpy.random.set_state(state)

    assert first == again
    assert len({*first, *other}) == 4  # each generator is another one
