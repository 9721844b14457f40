"""`steptime.plan.rank_memory`: closed forms, and what is left behind."""

import pytest

torch = pytest.importorskip("torch")
if not hasattr(pytest.importorskip("torch.distributed.fsdp"), "fully_shard"):
    pytest.skip("this torch has no fully_shard", allow_module_level=True)

from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import steptime.plan  # noqa: E402
from steptime.errors import UsageError  # noqa: E402
from steptime.guest.forecast import fake_group  # noqa: E402

NUM_LAYERS, WIDTH = 4, 256
LAYER = (WIDTH * WIDTH + WIDTH) * 4
WEIGHTS = NUM_LAYERS * LAYER


def square(output):
    return output.square().mean()


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3)


def layers():
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(NUM_LAYERS)))


def forecast(sharding, *, world_size=4, rank=0, model=None, optimizer=adamw):
    ranks = steptime.plan.RankPlan(world_size=world_size, rank=rank, sharding=sharding)
    batch = torch.randn(64, WIDTH)
    return steptime.plan.rank_memory(model or layers(), batch, optimizer, ranks, loss=square)


def forecast_alone():
    return steptime.plan.memory(layers(), torch.randn(64, WIDTH), adamw, loss=square)


def with_views(model):
    return DistributedDataParallel(model, gradient_as_bucket_view=True)


def test_ddp_has_buckets_beside_all_else():
    alone, found = forecast_alone(), forecast("ddp")

    assert found.by_category["communication"] == WEIGHTS
    assert found.peak.estimate == pytest.approx(alone.peak.estimate + WEIGHTS, rel=0.001)
    assert sum(found.by_category.values()) == found.peak.estimate


def test_gradients_that_are_views_of_buckets_need_no_others():
    alone, found = forecast_alone(), forecast(with_views)

    assert "communication" not in found.by_category
    assert found.by_category["gradients"] == WEIGHTS
    assert found.peak.estimate == pytest.approx(alone.peak.estimate, rel=0.02)


def test_zero1_has_the_states_of_its_own_parameters():
    found = [forecast("zero1", rank=rank) for rank in range(4)]

    states = [one.by_category["optimizer"] for one in found]
    assert sum(states) == pytest.approx(2 * WEIGHTS, rel=0.001)
    assert max(states) < 0.3 * sum(states)
    assert all(one.by_category["gradients"] == WEIGHTS for one in found)


def test_fsdp2_has_a_shard_and_the_layers_that_are_gathered():
    found = forecast("fsdp2")

    assert found.by_category["weights"] == WEIGHTS / 4
    assert found.by_category["optimizer"] == pytest.approx(WEIGHTS / 2, rel=0.001)
    assert LAYER <= found.by_category["communication"] <= 4 * LAYER
    assert found.unknown == ()


def test_zero2_keeps_gathered_layers_until_the_backward():
    kept, freed = forecast("zero2"), forecast("zero3")

    assert kept.peak.estimate - freed.peak.estimate > LAYER


def test_uneven_shards_differ_by_rank():
    model = nn.Sequential(nn.Linear(WIDTH, 6, bias=False))

    found = [forecast("fsdp2", model=model, rank=rank) for rank in range(4)]

    rows = [one.by_category["weights"] // (WIDTH * 4) for one in found]
    assert rows == [2, 2, 2, 2]  # the last rank holds padding alone


def test_nothing_stays_of_the_group():
    resize = torch.UntypedStorage.resize_
    model = layers()

    forecast("fsdp2", model=model)

    assert not torch.distributed.is_initialized()
    assert torch.UntypedStorage.resize_ is resize
    assert all(type(one) is nn.Parameter for one in model.parameters())
    storage = torch.empty(4).untyped_storage()
    storage.resize_(32)
    assert storage.nbytes() == 32


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"sharding": "megatron"}, "zero1"),
        ({"sharding": "ddp", "rank": 4}, "rank"),
        ({"sharding": "ddp", "world_size": 0}, "world_size"),
        ({"sharding": lambda model: model.no_such()}, "no_such"),
    ],
)
def test_wrong_arguments_are_said(arguments, said):
    with pytest.raises(UsageError, match=said):
        forecast(**arguments)


def test_an_optimizer_that_is_there_already_is_refused():
    model = layers()

    with pytest.raises(UsageError, match="function of parameters"):
        forecast("ddp", model=model, optimizer=adamw(model.parameters()))


def test_a_parameter_that_is_not_used_is_said():
    class Unused(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.other = nn.Linear(WIDTH, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.used(x)

    with pytest.raises(UsageError, match="find_unused_parameters"):
        forecast("ddp", model=Unused())


def test_a_process_in_a_group_is_refused():
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        with pytest.raises(UsageError, match="init_process_group"):
            forecast("ddp")
    finally:
        torch.distributed.destroy_process_group()


def test_an_old_torch_has_no_ranks(monkeypatch):
    monkeypatch.setattr(fake_group, "OLDEST", (99, 0))

    found = forecast("fsdp2")

    assert found.peak is None
    assert found.unknown == (f"no_fake_ranks: torch {torch.__version__}",)
