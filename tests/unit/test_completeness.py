"""The proof that a count is whole: it holds where all was counted, and for nothing else."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import steptime  # noqa: E402
from counted_layers import LAYERS, Calls, matrix  # noqa: E402
from counted_models import PLANTED, Planted  # noqa: E402
from counted_weights import WHOLE  # noqa: E402
from partly_seen import PARTLY_SEEN, NumpyLinear  # noqa: E402
from steptime.core.codec import from_json, to_json  # noqa: E402
from steptime.guest.count.completeness import CompletenessProof  # noqa: E402
from steptime.guest.count.counting_mode import make_mode  # noqa: E402
from steptime.guest.count.tally import Tally  # noqa: E402
from steptime.measure.values.model.work import Count  # noqa: E402
from steptime.measure.work.mean_count import mean_count, with_ranks  # noqa: E402

# Layers that torch calls experimental warn once.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*script_method:DeprecationWarning", "ignore::UserWarning"
)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def count_of(planted: Planted) -> Count:
    return steptime.count(planted.model, *planted.inputs)


# -- what is whole


@pytest.mark.parametrize("name", [*LAYERS, *WHOLE])
def test_a_model_that_is_all_seen_has_its_closed_form_and_the_proof(name: str) -> None:
    planted = (LAYERS | WHOLE)[name]()

    found = count_of(planted)

    assert (found.forward, found.backward, found.recomputed) == (
        planted.forward,
        planted.backward,
        planted.recomputed,
    )
    assert (found.is_complete, found.covered_fraction) == (True, 1.0)
    assert found.completeness is not None
    assert found.completeness.num_met == found.completeness.num_matrices > 0


@pytest.mark.parametrize("name", [one for one in PLANTED if one != "gpt_compiled"])
def test_the_proof_holds_for_the_other_planted_models(name: str) -> None:
    assert count_of(PLANTED[name]()).is_complete is True


def test_a_tied_matrix_is_one_and_an_unused_one_is_none() -> None:
    proofs = [
        count_of(WHOLE[name]()).completeness
        for name in ("tied_autoencoder", "tied_embedding", "unused_branch")
    ]

    assert [one.num_matrices for one in proofs if one is not None] == [1, 2, 1]


def test_where_nothing_is_trained_nothing_is_claimed() -> None:
    with torch.no_grad():
        found = count_of(PLANTED["linear_stack"]())

    assert (found.is_complete, found.covered_fraction) == (None, 1.0)


# -- what is not


@pytest.mark.parametrize("name", PARTLY_SEEN)
def test_a_model_of_which_a_part_is_not_seen_is_never_called_whole(name: str) -> None:
    planted = PARTLY_SEEN[name]()

    found = count_of(planted)

    assert found.is_complete is False
    assert found.total < planted.total
    assert found.covered_fraction != 1.0
    assert found.total == 0 or found.forward <= planted.forward


@pytest.mark.parametrize(
    ("name", "unmet", "passes", "takers"),
    [
        ("numpy_linear", "Calls.weight", ("forward", "backward"), ("NumpyLinear",)),
        ("raw_linear", "Calls.weight", ("forward", "backward"), ("RawLinear",)),
        ("numpy_head", "Calls.weight", ("forward", "backward"), ("NumpyLinear",)),
        ("numpy_tied_head", "Calls.table.weight", ("forward", "backward"), ("NumpyLinear",)),
        ("custom_operator", "Calls.weight", ("forward", "backward"), ("partly_seen::linear",)),
        ("numpy_gradients", "Calls.weight", ("backward",), ()),
        ("threaded", "Calls.body.weight", ("forward",), ()),
        ("half_threaded", "Calls.layer.weight", ("forward",), ()),
        ("computed_before", "a matrix of 14 x 10", ("forward",), ()),
        ("bilinear", "Bilinear.weight", ("forward",), ("aten::_trilinear",)),
    ],
)
def test_what_was_not_met_is_named(
    name: str, unmet: str, passes: tuple[str, ...], takers: tuple[str, ...]
) -> None:
    proof = count_of(PARTLY_SEEN[name]()).completeness

    assert proof is not None
    (one,) = proof.unmet
    assert (one.name, one.passes, one.takers) == (unmet, passes, takers)
    assert proof.num_met == proof.num_matrices - 1


@pytest.mark.parametrize(
    ("name", "function"), [("numpy_normed", "NumpyLinear"), ("raw_attention", "RawAttention")]
)
def test_a_function_whose_result_no_operator_made_is_named(name: str, function: str) -> None:
    found = count_of(PARTLY_SEEN[name]())

    assert found.completeness is not None
    assert found.completeness.unseen == (function,)
    assert found.covered_fraction is None


# -- over updates, as a run counts them


class Copies(torch.autograd.Function):  # type: ignore[misc]
    """A function of the script's own whose result an operator made."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


class Updates:
    """Counts update after update with one proof, as a run does."""

    def __init__(self, *optimizers: Any) -> None:
        self.optimizers = optimizers
        self.completeness = CompletenessProof(torch)

    def run(self, step: Any, *, is_counted: bool = True) -> None:
        if not is_counted:
            step()
            return
        tally = Tally(torch, completeness=self.completeness)
        self.completeness.begin_update(self.optimizers)
        tally.follow_modules()
        with make_mode(torch, tally.add, lambda: 0, decomposes=True):
            step()
        tally.unfollow_modules()
        self.completeness.end_update()
        self.table = tally.table(is_executed=True)

    def proof(self) -> Any:
        return from_json(Count, self.table).completeness


def test_forward_and_backward_of_a_generator_may_belong_to_two_updates() -> None:
    maker, critic = nn.Linear(4, 8, bias=False), nn.Linear(8, 1, bias=False)
    updates = Updates(torch.optim.SGD(maker.parameters()), torch.optim.SGD(critic.parameters()))
    made: list[Any] = []

    def judge() -> None:
        made.append(maker(torch.randn(3, 4)))
        critic(made[-1].detach()).mean().backward()

    def deceive() -> None:
        critic(made.pop()).mean().backward()

    updates.run(judge, is_counted=False)
    updates.run(deceive)  # its forward was not counted
    first = updates.proof()
    updates.run(judge)

    assert (first.is_complete, first.unmet[0].passes) == (False, ("forward",))
    assert updates.proof().is_complete is True
    assert updates.proof().num_matrices == 2


def test_a_gradient_by_hand_is_one_that_nobody_made() -> None:
    layer = nn.Linear(4, 8, bias=False)
    updates = Updates(torch.optim.SGD(layer.parameters()))

    def step() -> None:
        layer(torch.randn(3, 4))
        layer.weight.grad = torch.from_numpy(layer.weight.detach().numpy() * 2)

    updates.run(step)

    (one,) = updates.proof().unmet
    assert (one.name, one.passes) == ("Linear.weight", ("backward",))


def test_a_gradient_that_autograd_returned_may_be_set_by_hand() -> None:
    layer = nn.Linear(4, 8, bias=False)
    updates = Updates(torch.optim.SGD(layer.parameters()))

    def step() -> None:
        (found,) = torch.autograd.grad(layer(torch.randn(3, 4)).sum(), layer.weight)
        layer.weight.grad = found

    updates.run(step)

    assert (updates.proof().is_complete, updates.proof().num_matrices) == (True, 1)


def test_gradients_of_before_are_not_of_this_update() -> None:
    used, unused = nn.Linear(4, 8), nn.Linear(4, 8)
    unused(torch.randn(3, 4)).sum().backward()
    updates = Updates(torch.optim.SGD([*used.parameters(), *unused.parameters()]))

    updates.run(lambda: used(torch.randn(3, 4)).sum().backward())

    assert (updates.proof().is_complete, updates.proof().num_matrices) == (True, 1)


def test_what_is_added_to_a_gradient_of_before_is_looked_at_alone() -> None:
    layer = nn.Linear(4, 8)
    layer(torch.randn(3, 4)).sum().backward()
    updates = Updates(torch.optim.SGD(layer.parameters()))

    updates.run(lambda: layer(torch.randn(3, 4)).sum().backward())

    assert updates.proof().is_complete is True


def test_gradients_that_ddp_scales_into_its_buckets_are_those_of_products() -> None:
    distributed = torch.distributed
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)))
        updates = Updates(torch.optim.SGD(net.parameters()))
        for _ in range(2):
            updates.run(lambda: net(torch.randn(3, 4)).sum().backward())
    finally:
        distributed.destroy_process_group()

    assert updates.proof().num_met == updates.proof().num_matrices == 2
    assert updates.table["covered_fraction"] == 1.0


def test_a_failure_of_ours_leaves_no_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(CompletenessProof, "_use", fail)

    found = count_of(PLANTED["linear_stack"]())

    assert found.is_complete is None
    assert found.total == PLANTED["linear_stack"]().total


def test_elements_that_a_library_puts_elsewhere_are_still_the_matrix() -> None:
    layer = nn.Linear(4, 8, bias=False)
    updates = Updates(torch.optim.SGD(layer.parameters()))

    def step() -> None:
        layer.weight.data = layer.weight.detach().clone()
        layer(torch.randn(3, 4)).sum().backward()

    updates.run(step)
    updates.run(step)

    assert (updates.proof().is_complete, updates.proof().num_matrices) == (True, 1)


def test_a_loss_between_models_says_nothing_of_the_function_before_it() -> None:
    proof = CompletenessProof(torch, sees_all=False)
    tally, layer, x = Tally(torch, completeness=proof), nn.Linear(4, 4), torch.randn(3, 4)

    with make_mode(torch, tally.add, lambda: 0):
        proof.see_inputs((x,))
        result = Copies.apply(layer(x))
        proof.see_results((result,))
    loss = result.log_softmax(-1).sum()
    with make_mode(torch, tally.add, lambda: 0):
        loss.backward()

    table = proof.table()
    assert table is not None
    assert (table["is_complete"], table["unseen"]) == (True, [])


@pytest.mark.parametrize("is_inside", [True, False])
def test_between_models_a_function_of_the_scripts_is_not_looked_at(is_inside: bool) -> None:  # noqa: FBT001
    from partly_seen import RawAttention

    layer, x = nn.Linear(4, 4, bias=False), torch.randn(2, 3, 4)

    def run(self: Any, x: Any) -> Any:
        made = layer(x)
        return RawAttention.apply(made, made) if is_inside else made

    proof = CompletenessProof(torch, sees_all=False)
    tally = Tally(torch, completeness=proof)
    with make_mode(torch, tally.add, lambda: 0):
        proof.see_inputs((x,))
        result = run(None, x)
        proof.see_results((result,))
    loss = (result if is_inside else RawAttention.apply(result, result)).sum()
    with make_mode(torch, tally.add, lambda: 0):
        loss.backward()

    table = proof.table()
    assert table is not None
    assert table["is_complete"] is not is_inside
    assert table["unseen"] == (["RawAttention"] if is_inside else [])


@pytest.mark.parametrize("function", ["addmm", "baddbmm"])
def test_a_matrix_that_is_added_to_a_product_meets_none(function: str) -> None:
    sizes = (3, 4, 6) if function == "addmm" else (2, 3, 4, 6)
    *stack, rows, inner, columns = sizes

    def run(self: Any, x: Any) -> Any:
        return getattr(torch, function)(self.offset, x, self.weight)

    model = Calls(run, offset=matrix(*stack, rows, columns), weight=matrix(*stack, inner, columns))

    assert steptime.count(model, torch.randn(*stack, rows, inner)).is_complete is True


def test_a_cast_that_was_made_before_is_still_the_matrix() -> None:
    weight = matrix(4, 6)
    cast = weight.bfloat16()

    found = steptime.count(lambda: torch.randn(3, 4, dtype=torch.bfloat16) @ cast)

    assert (found.is_complete, found.covered_fraction) == (True, 1.0)


# -- several devices


def broadcast_twice() -> Any:
    """Torch's own `Broadcast` needs GPUs; this one says that it is torch's."""

    class Broadcast(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            copies = [torch.from_numpy(one.detach().numpy().copy()) for one in inputs]
            return (*(one.view_as(one) for one in inputs), *copies)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            half = len(gradients) // 2
            pairs = zip(gradients[:half], gradients[half:], strict=True)
            return tuple(torch.from_numpy((a + b).numpy().copy()) for a, b in pairs)

    Broadcast.__module__ = "torch.nn.parallel._functions"
    return Broadcast


@pytest.mark.parametrize("is_seen", [True, False])
def test_replicas_on_other_devices_are_copies_of_their_matrix(is_seen: bool) -> None:  # noqa: FBT001
    from partly_seen import in_a_thread

    def run(self: Any, x: Any) -> Any:
        here, there = broadcast_twice().apply(self.weight)
        if is_seen:
            return x @ here + x @ there
        return x @ here + in_a_thread(lambda y: y @ there, x)

    proof = steptime.count(Calls(run, weight=matrix(4, 6)), torch.randn(3, 4)).completeness

    assert proof is not None
    assert (proof.is_complete, proof.num_matrices) == (is_seen, 1)


# -- what becomes of it


def test_it_survives_a_round_trip_through_json() -> None:
    found = count_of(PARTLY_SEEN["numpy_linear"]())

    data = to_json(found)

    assert from_json(Count, data) == found
    assert data["completeness"]["is_complete"] is False
    assert data["completeness"]["unmet"][0]["name"] == "Calls.weight"


def test_the_mean_of_counts_has_the_last_proof_and_ranks_the_worst() -> None:
    whole = count_of(PLANTED["linear_stack"]())
    partial = count_of(PARTLY_SEEN["numpy_linear"]())
    key = (0, 1, 2)
    passes = (whole.forward, whole.backward, whole.recomputed)

    mean = mean_count([partial, whole], [(0, 0, 0), key], {key: 2}, passes=passes)

    assert mean.is_complete is True
    assert mean.devices == whole.devices
    assert with_ranks(mean, [whole, partial]).is_complete is False
    assert with_ranks(mean, [whole, whole]).is_complete is True
    assert with_ranks(replace(mean, completeness=None), [whole]).is_complete is None


def test_work_is_kept_by_device() -> None:
    found = count_of(PLANTED["linear_stack"]())

    assert [(one.name, one.flops) for one in found.devices] == [("cpu", found.total)]


def test_a_gpu_is_named_as_the_datasheet_names_it() -> None:
    from steptime.guest.count.tally import name_of_device

    cuda = SimpleNamespace(get_device_name=lambda device: f"Part {device.index}")
    device = SimpleNamespace(type="cuda", index=1)

    assert name_of_device(SimpleNamespace(cuda=cuda), device) == "Part 1"


def test_the_same_function_is_whole_where_an_operator_makes_its_result() -> None:
    class Seen(NumpyLinear):
        @staticmethod
        def forward(ctx: Any, x: Any, weight: Any) -> Any:
            ctx.save_for_backward(x, weight)
            return x @ weight.T

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            x, weight = ctx.saved_tensors
            return gradient @ weight, gradient.T @ x

    def run(self: Any, x: Any) -> Any:
        return Seen.apply(x, self.weight).relu()

    assert steptime.count(Calls(run, weight=matrix(4, 6)), torch.randn(3, 6)).is_complete is True
