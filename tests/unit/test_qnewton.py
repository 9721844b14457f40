"""Newton's method by blocks: curvature, solvers, the scheduler, and the optimizer."""

import copy
import dataclasses
import itertools
import math
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from steptime.methods.qnewton import (  # noqa: E402
    SOLVERS,
    BlockSystem,
    Curvature,
    Objective,
    QNewton,
    QuantumAssumptions,
    Scheduler,
    SolverTimes,
    estimate_condition,
    named,
    norm_determinant_bound,
    prune_symmetric,
)
from steptime.methods.qnewton.block_solvers import num_iterations  # noqa: E402
from steptime.methods.qnewton.condition_number import iterations_of_cg, lanczos  # noqa: E402
from steptime.methods.qnewton.curvature import curvature_along, damped, systems_of  # noqa: E402
from steptime.methods.qnewton.objective import kronecker_factors  # noqa: E402
from steptime.methods.qnewton.solver_times import nonnegative_fit  # noqa: E402


def spectrum(num, kappa, seed=0, dtype=torch.float64):
    chance = torch.Generator().manual_seed(seed)
    basis, _ = torch.linalg.qr(torch.randn(num, num, generator=chance, dtype=torch.float64))
    values = torch.logspace(0, -math.log10(kappa), num, dtype=torch.float64)
    matrix = basis @ torch.diag(values) @ basis.T
    return ((matrix + matrix.T) / 2).to(dtype)


def network(seed=0, dtype=torch.float64):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).to(dtype)


def batch(num=16, dtype=torch.float64):
    chance = torch.Generator().manual_seed(1)
    inputs = torch.randn(num, 4, generator=chance, dtype=dtype)
    return inputs, torch.randint(0, 3, (num,), generator=chance)


def gradients_of(objective, data):
    found = torch.autograd.grad(objective(*data), list(objective.parameters.values()))
    return dict(zip(objective.parameters, found, strict=True))


def systems(kind, data=None, **settings):
    objective = Objective(network(), functional.cross_entropy)
    data = data or batch()
    made = systems_of(
        objective, gradients_of(objective, data), Curvature(kind=kind, **settings), batch=data
    )
    return objective, data, made


class Clock:
    """Each solution takes the same time, so that the prediction alone decides."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1e-3
        return self.now


def known_times(seconds):
    """Times that say a constant for each solver, whatever the system."""
    times = SolverTimes(Clock())
    num_terms = {"lu": 5, "cholesky": 5, "woodbury": 4, "cg": 4, "kfac": 3}
    times.coefficients = {n: [s] + [0.0] * (num_terms[n] - 1) for n, s in seconds.items()}
    return times


EVEN = {"lu": 5.0, "cholesky": 4.0, "woodbury": 3.0, "cg": 2.0, "kfac": 1.0}


# --- curvature ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["0.weight", "2.bias"])
def test_the_fisher_rows_are_the_samples_own_gradients(name):
    objective, (inputs, targets), made = systems("fisher")
    rows = []
    for i in range(len(inputs)):
        found = gradients_of(objective, (inputs[i : i + 1], targets[i : i + 1]))
        rows.append(found[name].flatten())
    expected = torch.stack(rows).T @ torch.stack(rows) / len(inputs)

    torch.testing.assert_close(made[name].matrix(), expected)


def test_gauss_newton_is_the_hessian_where_outputs_are_linear_in_the_block():
    _, _, gauss_newton = systems("gauss_newton")
    _, _, hessian = systems("hessian")

    for name in ("2.weight", "2.bias"):
        torch.testing.assert_close(gauss_newton[name].matrix(), hessian[name].matrix())


def test_the_hessian_is_the_second_derivative():
    objective, data, made = systems("hessian")
    value = objective.current(["0.weight"])["0.weight"]

    def loss(flat):
        return objective.loss_at({"0.weight": flat.view_as(value)}, data)

    expected = torch.autograd.functional.hessian(loss, value.flatten())

    torch.testing.assert_close(made["0.weight"].matrix(), expected)


@pytest.mark.parametrize("kind", ["gauss_newton", "hessian"])
def test_the_curvature_along_a_joint_direction_has_what_is_between_blocks(kind):
    objective, data, made = systems(kind)
    directions = {n: torch.ones(s.num_unknowns, dtype=torch.float64) for n, s in made.items()}
    alone = sum(float(d @ made[n].product(d)) for n, d in directions.items())
    joint = curvature_along(objective, made, directions, batch=data)

    assert joint != pytest.approx(alone, rel=1e-3)
    if kind == "hessian":
        some = objective.current(made)

        def along(t):
            return objective.loss_at({n: p + t * torch.ones_like(p) for n, p in some.items()}, data)

        second = torch.func.grad(torch.func.grad(along))(torch.zeros((), dtype=torch.float64))
        assert joint == pytest.approx(float(second))


def test_the_kronecker_factors_are_exact_for_one_sample():
    objective, _, made = systems("fisher", batch(1))
    inputs, outputs = kronecker_factors(objective, batch(1))["0.weight"]

    torch.testing.assert_close(torch.kron(outputs, inputs), made["0.weight"].matrix())


def test_an_indefinite_hessian_is_damped_until_it_is_positive_definite():
    _, _, made = systems("hessian")
    whole = made["0.weight"].matrix()
    assert float(torch.linalg.eigvalsh(whole)[0]) < 0

    ready = damped(made["0.weight"], Curvature(kind="hessian"), 5e-3)

    assert float(torch.linalg.eigvalsh(ready.matrix())[0]) > 0


def test_a_batch_norm_that_mixes_samples_is_refused():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double()
    objective = Objective(model, functional.cross_entropy)

    with pytest.raises(ValueError, match=r"1 is a batch norm in training mode, which mixes"):
        QNewton(objective).step(lambda: objective(*batch()))


# --- pruning --------------------------------------------------------------------------


@pytest.mark.parametrize("symmetry", ["union", "intersection"])
@pytest.mark.parametrize("keep", [0.1, 0.5, 1.0])
def test_pruning_stays_symmetric_and_counts_what_is_left(symmetry, keep):
    matrix = spectrum(40, 100)

    pruned = prune_symmetric(matrix, keep=keep, symmetry=symmetry)

    assert torch.equal(pruned.matrix, pruned.matrix.T)
    assert pruned.sparsity == int((pruned.matrix != 0).sum(1).max())
    assert pruned.kept_fraction == float((pruned.matrix != 0).double().mean())
    if symmetry == "intersection":
        assert pruned.sparsity <= math.ceil(keep * 40) + 1  # the diagonal always stays
    assert torch.equal(pruned.matrix.diagonal(), matrix.diagonal())


def test_pruning_says_when_positive_definiteness_is_lost_and_damping_gives_it_back():
    ones = torch.full((6, 6), 0.99, dtype=torch.float64)
    matrix = ones.fill_diagonal_(1.0)
    matrix += torch.diag(torch.linspace(0, 1e-3, 6, dtype=torch.float64))
    found = prune_symmetric(matrix, keep=0.5, symmetry="union")
    truly = float(torch.linalg.eigvalsh(found.matrix)[0]) > 0

    assert found.is_positive_definite == truly is False
    assert prune_symmetric(matrix, keep=0.5, damping=10.0).is_positive_definite

    system = BlockSystem(name="w", gradient=torch.ones(6).double(), damping=0, dense=matrix)
    ready = damped(system, Curvature(keep=0.5), 1e-3)
    assert float(torch.linalg.eigvalsh(ready.matrix())[0]) >= 0.499 * ready.damping


# --- condition numbers ----------------------------------------------------------------


@pytest.mark.parametrize("num", [256, 512])
@pytest.mark.parametrize(("kappa", "within"), [(10, 1.5), (100, 1.5), (1e3, 1.5), (1e4, 4)])
def test_a_condition_number_from_28_products_is_near(num, kappa, within):
    matrix = spectrum(num, kappa, dtype=torch.float32)

    found = estimate_condition(lambda v: matrix @ v, matrix[0])

    assert found.num_products == 28
    assert kappa / within <= found.kappa <= kappa * within
    assert found.lower <= 1.01 * kappa


def test_known_damping_bounds_the_condition_number():
    factor = torch.randn(8, 200, dtype=torch.float64)
    system = BlockSystem(name="w", gradient=factor[0], damping=0.5, factor=factor)
    true = float(torch.linalg.cond(system.matrix()))

    found = estimate_condition(system.product, system.gradient, floor=0.5)

    assert found.kappa == pytest.approx(true, rel=1e-3)


def test_the_papers_bound_holds_and_says_nothing_beyond_toy_sizes():
    bounds = [norm_determinant_bound(spectrum(num, 10)) for num in (2, 8, 64, 512)]

    assert bounds[0] >= 10 * 0.999
    assert 50 < bounds[1] < 150
    assert bounds[2] > 1e11  # of a true 10
    assert bounds[3] > 1e80


@pytest.mark.parametrize("kappa", [5.0, 300.0])
def test_lanczos_from_the_right_side_knows_the_iterations_of_conjugate_gradients(kappa):
    matrix = spectrum(200, kappa)
    right = torch.randn(200, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    system = BlockSystem(name="w", gradient=right, damping=0.0, dense=matrix)
    seen = iterations_of_cg(lanczos(matrix.mv, right, 28), 1e-2)
    shifted = lanczos(matrix.mv, right, 28) + 0.5 * torch.eye(28, dtype=torch.float64)
    damped_one = dataclasses.replace(system, damping=0.5)

    within = 0.35 if kappa > 100 else 0.0  # past 28 products it is carried on
    assert seen == pytest.approx(named("cg").solve(system, 1e-2).num_iterations, rel=within, abs=1)
    assert iterations_of_cg(shifted, 1e-2) == pytest.approx(
        named("cg").solve(damped_one, 1e-2).num_iterations, abs=1
    )


# --- solvers --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lu", "cholesky", "woodbury", "cg"])
def test_each_solver_solves(name):
    _, _, made = systems("fisher")
    system = dataclasses.replace(made["0.weight"], damping=0.1, kappa=100.0)
    expected = torch.linalg.solve(system.matrix(), system.gradient)

    found = named(name).solve(system, 1e-10)

    torch.testing.assert_close(found.values, expected, rtol=1e-6, atol=1e-9)
    assert system.residual(found.values) < 1e-8


def test_kfac_is_exact_without_damping_where_the_block_is_a_product():
    chance = torch.Generator().manual_seed(0)
    roots = [torch.randn(20, n, generator=chance, dtype=torch.float64) for n in (4, 3)]
    inputs, outputs = (one.T @ one for one in roots)
    dense = torch.kron(outputs, inputs)
    gradient = torch.randn(12, generator=chance, dtype=torch.float64)
    system = BlockSystem(
        name="w", gradient=gradient, damping=1e-14, kronecker=(inputs, outputs), shape=(3, 4)
    )

    found = named("kfac").solve(system, 0.1).values

    torch.testing.assert_close(found, torch.linalg.solve(dense, gradient), rtol=1e-5, atol=1e-8)


def test_cg_says_that_it_met_negative_curvature():
    system = BlockSystem(
        name="w", gradient=torch.ones(3), damping=0, dense=torch.diag(torch.tensor([1.0, -2, 1]))
    )

    assert named("cg").solve(system, 0.01).failure == "negative curvature was met"
    assert named("cholesky").solve(system, 0.01).failure == "the matrix is not positive definite"


def test_iterations_grow_with_the_root_of_the_condition_number():
    system = BlockSystem(name="w", gradient=torch.ones(5000), damping=1.0, kappa=100.0)
    more = dataclasses.replace(system, kappa=400.0)

    assert num_iterations(more, 0.01) == pytest.approx(2 * num_iterations(system, 0.01))


def test_a_fit_has_no_negative_coefficient_and_finds_those_that_made_it():
    rows = torch.tensor([[1.0, n, n**3] for n in (10, 30, 100, 300, 1000)], dtype=torch.float64)
    exact = nonnegative_fit(rows, rows @ torch.tensor([1e-5, 2e-8, 3e-11], dtype=torch.float64))
    bent = nonnegative_fit(rows, rows[:, 0] * 1e-5 - 1e-10 * rows[:, 1] + 1e-12 * rows[:, 2])

    assert exact == pytest.approx([1e-5, 2e-8, 3e-11], rel=1e-5)
    assert min(bent) >= 0


def test_calibrated_times_rank_woodbury_before_lu_where_the_rank_is_low():
    times = SolverTimes()
    times.calibrate(torch.zeros(1), solvers=[named("lu"), named("woodbury")])
    system = BlockSystem(
        name="w", gradient=torch.ones(2000), damping=1.0, factor=torch.ones(16, 2000), kappa=9.0
    )

    assert times.predict(named("lu"), system, 0.01) > 5 * times.predict(
        named("woodbury"), system, 0.01
    )


# --- the scheduler --------------------------------------------------------------------


def ready_system(kind="fisher", **changes):
    _, _, made = systems(kind)
    return dataclasses.replace(made["0.weight"], damping=0.1, kappa=50.0, **changes)


def test_the_cheapest_solver_takes_the_block_and_the_log_says_why():
    scheduler = Scheduler(known_times(EVEN))
    system = ready_system()

    values, decision = scheduler.solve(system, step=3)

    assert decision.chosen == "cg"
    assert dict(decision.refused) == {
        "kfac": "the block is not the weight of a linear layer that was seen"
    }
    assert [name for name, _ in decision.predicted_s] == ["cg", "woodbury", "cholesky", "lu"]
    assert decision.keeps_bound
    assert decision.residual == pytest.approx(system.residual(values))
    assert decision.step == 3
    assert list(scheduler.log) == [decision]


def test_a_solver_that_misses_the_bound_is_followed_by_the_next_and_is_known_from_then_on():
    factors = (torch.eye(4).double(), torch.eye(5).double())
    system = ready_system(kronecker=factors)
    scheduler = Scheduler(known_times(EVEN), error_bound=1e-6)

    _, first = scheduler.solve(system, step=0)
    _, second = scheduler.solve(system, step=1)

    assert first.chosen == second.chosen == "cg"
    assert "tried: residual" in dict(first.refused)["kfac"]
    assert "its residual is about" in dict(second.refused)["kfac"]
    assert "kfac" in {solver.name for solver, _ in scheduler.rank(system, step=60)[0]}


def test_what_was_seen_corrects_what_was_fitted():
    times = known_times(EVEN)
    system = ready_system()
    for _ in range(3):
        times.observe(named("cg"), system, bound=0.01, took_s=9.0)

    _, decision = Scheduler(times).solve(system)

    assert decision.chosen == "woodbury"


def test_rounding_rules_out_woodbury_for_an_ill_conditioned_block_in_float32():
    system = ready_system()
    system = dataclasses.replace(
        system, gradient=system.gradient.float(), factor=system.factor.float(), kappa=1e6
    )

    _, decision = Scheduler(known_times(EVEN | {"woodbury": 1e-3})).solve(system)

    assert decision.chosen != "woodbury"
    assert "above 0.01" in dict(decision.refused)["woodbury"]


def test_the_log_keeps_modeled_time_apart():
    quantum = QuantumAssumptions(gate_time_s=1e-30, readout="none")
    scheduler = Scheduler(known_times(EVEN), quantum=quantum)

    _, decision = scheduler.solve(ready_system())

    assert decision.chosen == "cg"
    assert decision.would_choose == "quantum"
    assert decision.break_even_gate_time_s > 1e-30
    with pytest.raises(TypeError, match="it was not measured"):
        decision.took_s + decision.modeled


@pytest.mark.parametrize("bound", [0.0, 1.0, math.nan])
def test_a_bound_out_of_range_is_refused(bound):
    with pytest.raises(ValueError, match="0 < error_bound < 1"):
        Scheduler(error_bound=bound)


def test_an_unknown_solver_is_named_with_those_there_are():
    with pytest.raises(ValueError, match="no solver 'qr': there are lu, cholesky"):
        named("qr")


# --- the optimizer --------------------------------------------------------------------


def trained(num_steps, dtype=torch.float32, **settings):
    data = batch(64, dtype)
    objective = Objective(network(dtype=dtype), functional.cross_entropy)
    scheduler = Scheduler(known_times(EVEN), error_bound=1e-3)
    optimizer = QNewton(objective, curvature=Curvature(**settings), scheduler=scheduler)
    losses = [float(optimizer.step(lambda: objective(*data))) for _ in range(num_steps)]
    return objective, optimizer, losses, data


@pytest.mark.parametrize("kind", ["gauss_newton", "fisher", "hessian"])
def test_it_trains_faster_than_sgd_a_step(kind):
    _, optimizer, losses, data = trained(20, kind=kind)
    model = network(dtype=torch.float32)
    sgd = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(60):
        sgd.zero_grad()
        loss = functional.cross_entropy(model(data[0]), data[1])
        loss.backward()
        sgd.step()

    assert losses[-1] < float(loss.detach())
    assert all(later <= before for before, later in itertools.pairwise(losses))
    assert len(optimizer.decisions) == 20 * 4


def test_it_trains_on_pruned_curvature():
    _, optimizer, losses, _ = trained(15, keep=0.5)

    assert losses[-1] < 0.8 * losses[0]
    weight = next(one for one in optimizer.decisions if one.block == "0.weight")
    assert weight.sparsity <= 20
    assert dict(weight.refused)["woodbury"] == "the curvature is not given as rows of low rank"


def test_one_step_solves_a_quadratic_problem():
    torch.manual_seed(0)
    model = nn.Linear(3, 1, bias=False).double()
    inputs, targets = torch.randn(30, 3).double(), torch.randn(30, 1).double()
    objective = Objective(model, functional.mse_loss)
    optimizer = QNewton(
        objective,
        curvature=Curvature(damping=1e-12, kind="hessian"),
        scheduler=Scheduler(known_times(EVEN), solvers=(named("cholesky"),)),
    )

    optimizer.step(lambda: objective(inputs, targets))

    expected = torch.linalg.lstsq(inputs, targets).solution.T
    torch.testing.assert_close(model.weight.detach(), expected, rtol=1e-6, atol=1e-8)


def test_a_closure_that_calls_backward_is_as_good():
    one, two = (Objective(network(), functional.cross_entropy) for _ in range(2))
    optimizers = [QNewton(o, scheduler=Scheduler(known_times(EVEN))) for o in (one, two)]

    def closure():
        optimizers[1].zero_grad()
        loss = two(*batch())
        loss.backward()
        return loss

    optimizers[0].step(lambda: one(*batch()))
    optimizers[1].step(closure)

    for name, value in one.parameters.items():
        assert torch.equal(value, two.parameters[name])


def test_a_state_goes_around_and_training_goes_on_the_same():
    objective, optimizer, _, data = trained(3)
    other = Objective(copy.deepcopy(objective.model), functional.cross_entropy)
    loaded = QNewton(other, scheduler=Scheduler(known_times(EVEN), error_bound=1e-3))
    loaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))

    for _ in range(4):
        optimizer.step(lambda: objective(*data))
        loaded.step(lambda: other(*data))

    assert loaded.param_groups[0]["step"] == 7
    for name, value in objective.parameters.items():
        assert torch.equal(value, other.parameters[name])


def test_a_learning_rate_schedule_reaches_it():
    objective, optimizer, _, data = trained(1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    optimizer.step(lambda: objective(*data))
    schedule.step()

    assert optimizer.param_groups[0]["lr"] == 0.5


def refused(model, sentence, *, loss=functional.cross_entropy, data=None, closure=None, **settings):
    objective = Objective(model, loss)
    before = copy.deepcopy(model.state_dict())

    def act():
        optimizer = QNewton(objective, scheduler=Scheduler(known_times(EVEN)), **settings)
        optimizer.step(closure or (lambda: objective(*(data or batch()))))

    with pytest.raises(ValueError, match=sentence):
        act()
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_what_it_cannot_do_is_refused_in_a_sentence_and_nothing_moves():
    refused(network(), "0.weight has 20 entries, and a block may have 10", max_block_size=10)
    refused(network().half(), "0.weight is torch.float16, and solvers need")
    refused(network(), "the closure did not call the objective", closure=lambda: torch.ones(()))
    refused(network(), "lr > 0", lr=0.0)
    inputs, targets = batch()
    refused(network(), "the loss is nan", data=(inputs * math.nan, targets))
    refused(network(), "the loss must be one number", loss=lambda out, _: out)
    sparse = nn.Sequential(nn.Embedding(4, 3, sparse=True)).double()
    refused(sparse, "0.weight has a sparse gradient", data=(targets, targets))


def test_a_curvature_that_is_not_finite_is_refused():
    def loss(output, target):
        # Its first derivative is 0 at 0 and its second is infinite.
        return (output[:, 0].abs() ** 1.5).mean() + 0 * target.sum()

    model = nn.Linear(4, 3, bias=False).double()
    nn.init.zeros_(model.weight)
    for kind in ("gauss_newton", "hessian"):
        refused(model, "NaN or infinite", loss=loss, curvature=Curvature(kind=kind))


def test_no_closure_and_frozen_models_are_refused():
    objective = Objective(network(), functional.cross_entropy)
    with pytest.raises(ValueError, match="needs a closure that returns the loss"):
        QNewton(objective).step()
    with pytest.raises(ValueError, match="so nothing to train"):
        Objective(network().requires_grad_(False), functional.cross_entropy)


@pytest.mark.parametrize(
    "wrong", [{"kind": "newton"}, {"damping": 0.0}, {"keep": 0.0}, {"refresh_steps": 0}]
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Curvature(**wrong)


def test_every_solver_has_its_own_name():
    assert len({solver.name for solver in SOLVERS}) == len(SOLVERS)


def test_the_page_on_it_runs_as_it_stands():
    page = Path(__file__).parents[2] / "docs" / "libraries" / "newton.md"
    first, second = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, object] = {}

    exec(first.replace("range(30)", "range(4)"), names)
    exec(second, names)

    assert float(names["loss"]) < 0.7
