"""`steptime.count` against closed forms, and what it leaves as it was."""

from __future__ import annotations

import importlib

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

import steptime  # noqa: E402
from counted_models import PLANTED, Gpt, words  # noqa: E402
from steptime.core.codec import from_json, to_json  # noqa: E402
from steptime.guest.count.operators.flops import OperatorWork, find_work  # noqa: E402
from steptime.measure.profile.operator_classes import class_of_operator  # noqa: E402
from steptime.measure.values.model.work import CLASSES, Count  # noqa: E402

# `torch.compile` imports modules of torch's that torch itself has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("name", PLANTED)
def test_the_work_of_a_planted_model_is_its_closed_form(name: str) -> None:
    planted = PLANTED[name]()

    found = steptime.count(planted.model, *planted.inputs)

    assert (found.forward, found.backward, found.recomputed) == (
        planted.forward,
        planted.backward,
        planted.recomputed,
    )
    assert sum(found.by_class.values()) == found.total == planted.total


@pytest.mark.parametrize("name", ["gpt", "gqa", "cross_attention", "lstm", "gru", "gcn"])
def test_almost_all_operators_have_a_formula(name: str) -> None:
    planted = PLANTED[name]()

    found = steptime.count(planted.model, *planted.inputs)

    assert found.uncovered == ()
    assert found.covered_fraction == 1.0


def test_an_operator_without_a_formula_is_named_and_not_covered() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv(x @ x)

    found = steptime.count(model, torch.eye(8))

    assert found.forward == 2 * 8**3
    assert found.covered_fraction is not None
    assert found.covered_fraction < 1
    assert found.uncovered == ("aten.linalg_inv_ex.default",)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("gpt", "attention"),
        ("lstm", "recurrent"),
        ("gru", "recurrent"),
        ("gcn", "sparse"),
        ("convnet", "convolution"),
        ("embedding_bag", "embedding"),
    ],
)
def test_work_stands_in_its_class(name: str, kind: str) -> None:
    planted = PLANTED[name]()

    found = steptime.count(planted.model, *planted.inputs)

    assert found.by_class[kind] > 0
    assert set(found.by_class) == set(CLASSES)
    if name == "gru":
        assert found.by_class["matmul"] == 0


def test_modules_hold_what_they_call_and_backward_finds_its_module() -> None:
    found = steptime.count(Gpt(), *words())

    rows = {one.name: one for one in found.modules}
    assert rows["Gpt"].total == found.total
    blocks = [rows[f"Gpt.blocks.{number}"] for number in range(3)]
    assert sum(block.total for block in blocks) + rows["Gpt.head"].total == found.total
    assert rows["Gpt.blocks.1.up"].backward == 2 * rows["Gpt.blocks.1.up"].forward
    assert rows["Gpt.blocks.1.up"].kind == "Linear"


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_is_recomputed_stands_at_its_module(reentrant: bool) -> None:  # noqa: FBT001
    found = steptime.count(Gpt(reentrant=reentrant), *words())

    rows = {one.name: one for one in found.modules}
    assert rows["Gpt.blocks.0.up"].recomputed == rows["Gpt.blocks.0.up"].forward
    assert rows["Gpt.blocks.0.up"].backward == 2 * rows["Gpt.blocks.0.up"].forward
    assert rows["Gpt.head"].recomputed == 0


def test_autocast_work_is_counted_by_its_type() -> None:
    planted = PLANTED["gpt_autocast"]()

    found = steptime.count(planted.model, *planted.inputs)

    assert found.by_dtype["bf16"] == found.total


def test_each_class_says_by_which_type_it_multiplied() -> None:
    planted = PLANTED["gpt_autocast"]()

    found = steptime.count(planted.model, *planted.inputs)

    rows = {one.name: one for one in found.classes}
    assert rows["matmul"].by_dtype == {"bf16": rows["matmul"].flops}
    assert rows["elementwise"].by_dtype == {}


def test_a_view_is_a_class_of_its_own_and_no_elementwise_operator() -> None:
    layer, rows = torch.nn.Linear(4, 3), torch.randn(2, 4)

    with torch.no_grad():
        found = steptime.count(lambda: layer(rows.view(4, 2).view(2, 4) + 1).detach().t_())

    kinds = {one.name: one.kind for one in found.operators}
    views = {"aten.t", "aten.view", "aten.detach", "aten.t_"}
    assert {name for name, kind in kinds.items() if kind == "view"} == views
    assert kinds["aten.add"] == "elementwise"


def test_attention_of_the_flash_attn_package_is_counted_in_its_own_layout() -> None:
    def shapes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:  # noqa: FBT001
        return torch.empty_like(q)

    name = "flash_attn::_flash_attn_forward"
    operator = torch.library.custom_op(name, shapes, mutates_args=())
    query, key = torch.randn(2, 16, 8, 4), torch.randn(2, 32, 2, 4)

    found = steptime.count(lambda: operator(query, key, key, True))

    assert found.by_class["attention"] == found.forward == 4 * 2 * 8 * 16 * 32 * 4
    assert found.masked_flops == found.forward // 2


def test_a_causal_mask_makes_half_of_attention_needless() -> None:
    found = steptime.count(Gpt(), *words())

    assert found.masked_flops == found.by_class["attention"] // 2
    assert found.again_flops > 0  # fused, it computes its scores once more


def test_a_compiled_model_is_counted_as_written() -> None:
    planted = PLANTED["gpt_compiled"]()

    assert steptime.count(planted.model, *planted.inputs).is_executed is False
    assert steptime.count(Gpt(), *words()).is_executed is True


def test_on_the_meta_device_nothing_is_computed_and_the_count_is_the_same() -> None:
    with torch.device("meta"):
        model = Gpt()

    found = steptime.count(model, torch.zeros(2, 32, dtype=torch.long, device="meta"))

    assert found.total == PLANTED["gpt"]().total
    assert all(one.time_s is None for one in found.classes)


def test_a_model_of_fake_tensors_is_counted_by_its_shapes() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        found = steptime.count(nn.Linear(8, 4), torch.randn(16, 8))

    assert (found.forward, found.backward) == (2 * 16 * 8 * 4, 2 * 16 * 8 * 4)
    assert all(one.time_s is None for one in found.classes)


def test_of_a_model_cut_over_ranks_the_work_of_this_rank_is_counted() -> None:
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
    from torch.testing._internal.distributed.fake_pg import FakeStore  # others that never answer

    distributed.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    try:
        layer = parallelize_module(
            nn.Linear(8, 16), init_device_mesh("cpu", (4,)), ColwiseParallel()
        )
        found = steptime.count(layer, torch.randn(32, 8))
    finally:
        distributed.destroy_process_group()

    assert (found.forward, found.backward) == (2 * 32 * 8 * 16 // 4, 2 * 32 * 8 * 16 // 4)
    assert found.uncovered == ()


def test_without_gradients_there_is_no_backward() -> None:
    planted = PLANTED["linear_stack"]()

    with torch.no_grad():
        found = steptime.count(planted.model, *planted.inputs)
    with torch.inference_mode():
        again = steptime.count(planted.model, *planted.inputs)

    assert (found.forward, found.backward) == (planted.forward, 0)
    assert (again.forward, again.backward) == (planted.forward, 0)


@pytest.mark.parametrize("name", ["leaky_relu", "elu", "hardswish", "glu", "logsigmoid", "mish"])
def test_activations_and_their_gradients_are_covered_and_no_product(name: str) -> None:
    found = steptime.count(getattr(F, name), torch.randn(4, 8, requires_grad=True))

    assert (found.total, found.uncovered) == (0, ())
    assert sum(one.pointwise_flops for one in found.classes) > 0


def test_a_product_added_in_place_is_a_product() -> None:
    x, y = torch.randn(8, 4), torch.randn(4, 6)

    found = steptime.count(lambda: torch.zeros(8, 6).addmm_(x, y))

    assert found.by_class["matmul"] == 2 * 8 * 4 * 6


def test_the_model_and_the_random_numbers_are_left_as_they_were() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    model[0].weight.grad = torch.ones(4, 4)
    before = [one.clone() for one in model.state_dict().values()]
    state = torch.get_rng_state()

    steptime.count(model, torch.randn(3, 4, generator=torch.Generator()))

    assert all(map(torch.equal, before, model.state_dict().values()))
    assert torch.equal(model[0].weight.grad, torch.ones(4, 4))
    assert model[0].bias.grad is None
    assert torch.equal(torch.get_rng_state(), state)
    assert nn.Module._call_impl.__name__ == "_call_impl"
    assert torch._C._len_torch_dispatch_stack() == 0


def test_an_optimizer_that_steps_as_gradients_arrive_does_not_step() -> None:
    model = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    model.weight.register_post_accumulate_grad_hook(lambda one: optimizer.step())
    before = model.weight.detach().clone()

    steptime.count(model, torch.randn(2, 3))

    assert torch.equal(model.weight, before)
    model(torch.randn(2, 3)).sum().backward()
    assert not torch.equal(model.weight, before)  # and does again afterwards


def test_an_error_of_the_model_is_its_own_and_nothing_stays_behind() -> None:
    original = nn.Module._call_impl

    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        steptime.count(nn.Linear(3, 3), torch.randn(2, 4))

    assert nn.Module._call_impl is original
    assert torch._C._len_torch_dispatch_stack() == 0


def test_a_function_that_returns_a_loss_is_counted_too() -> None:
    model, x, y = nn.Linear(8, 4), torch.randn(16, 8), torch.randint(0, 4, (16,))

    found = steptime.count(lambda: F.cross_entropy(model(x), y))

    assert (found.forward, found.backward) == (2 * 16 * 8 * 4, 2 * 16 * 8 * 4)
    assert model.weight.grad is None


def test_inputs_by_name_and_a_named_loss_are_understood() -> None:
    class Model(nn.Linear):
        def forward(self, *, x: torch.Tensor) -> dict[str, torch.Tensor]:
            out = super().forward(x)
            return {"loss": out.mean(), "scores": out @ out.T}

    found = steptime.count(Model(8, 4), x=torch.randn(16, 8))

    assert found.forward == 2 * 16 * 8 * 4 + 2 * 16 * 4 * 16
    assert found.backward == 2 * 16 * 8 * 4


def test_transposed_and_grouped_convolutions_have_gradients_of_their_own_size() -> None:
    conv = nn.ConvTranspose2d(8, 12, 3, stride=2, groups=4, bias=False)
    x = torch.randn(2, 8, 5, 5, requires_grad=True)

    found = steptime.count(conv, x)

    assert found.forward == 2 * 2 * 5 * 5 * 8 * 3 * 9
    assert found.backward == 2 * found.forward


def test_sums_by_index_are_one_an_element_and_have_no_multiply() -> None:
    at = torch.randint(0, 6, (20,))

    def spread(x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(6, 3).scatter_add(0, at[:, None].expand(20, 3), x)

    found = steptime.count(spread, torch.randn(20, 3, requires_grad=True))

    assert (found.forward, found.backward, found.macs) == (60, 0, 0)
    assert found.by_class["sparse"] == 60


def test_a_lookup_and_its_gradient_are_charged_nothing() -> None:
    found = steptime.count(nn.Embedding(10, 4), torch.arange(6))

    assert found.total == 0
    assert found.covered_fraction == 1.0


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no ranks")
def test_each_operator_between_ranks_is_communication_and_nothing_else() -> None:
    importlib.import_module("torch.distributed._functional_collectives")
    named = {one.partition(".")[0] for one in torch._C._dispatch_get_all_op_names()}
    between = [one for one in named if "c10d" in one.partition("::")[0]]
    assert {"c10d::allreduce_", "_c10d_functional::wait_tensor"} <= set(between)

    for name in between:
        space, _, short = name.partition("::")
        packet = getattr(getattr(torch.ops, space), short)
        func = getattr(packet, packet.overloads()[0])
        assert find_work(func, (), {}, None) == OperatorWork("communication"), name
        assert class_of_operator(name) == "communication", name
    assert class_of_operator("record_param_comms") == "communication"


def test_a_mark_for_a_profiler_is_no_operator() -> None:
    def marked(x: torch.Tensor) -> torch.Tensor:
        with torch.profiler.record_function("mark"):
            return x @ x

    found = steptime.count(marked, torch.ones(4, 4))

    assert [(one.name, one.num) for one in found.classes if one.name in ("matmul", "other")] == [
        ("matmul", 1)
    ]


def test_bytes_give_an_arithmetic_intensity() -> None:
    found = steptime.count(nn.Linear(64, 64, bias=False), torch.randn(64, 64))

    (matmul,) = [one for one in found.classes if one.name == "matmul"]
    assert matmul.moved_bytes == 2 * 3 * 64 * 64 * 4  # forward, and the gradient of the weight
    assert matmul.intensity == pytest.approx(2 * 64**3 / (3 * 64 * 64 * 4))


def test_a_count_survives_a_round_trip_through_json() -> None:
    found = steptime.count(Gpt(), *words())

    assert from_json(Count, to_json(found)) == found
