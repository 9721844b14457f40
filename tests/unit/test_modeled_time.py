"""The quantum solver: its cost by an independent formula, its type, and a simulation."""

import itertools
import math

import pytest

torch = pytest.importorskip("torch")

from steptime.methods.qnewton import (  # noqa: E402
    ModeledTime,
    QuantumAssumptions,
    break_even_gate_time_s,
    num_queries,
    quantum_time,
    query_bound,
    solve_by_walk,
)
from steptime.methods.qnewton.modeled_time import num_gates  # noqa: E402

ALPHAS, KAPPAS = (1, 2, 16, 300), (1, 3, 10, 100, 1e4, 1e8)
PRECISIONS = (0.24, 0.1, 0.01, 1e-4, 1e-10)


def bound_in_mpmath(alpha, kappa, precision):
    mp = pytest.importorskip("mpmath").mp
    mp.dps = 50
    a, k, eps = mp.mpf(alpha), mp.mpf(kappa), mp.mpf(precision)
    ell = mp.log(2 * k + 3)
    first = mp.mpf(1741) / 500 * a * mp.e * mp.sqrt(k**2 + 1)
    first *= (mp.mpf(133) / 125 + mp.mpf(4) / 25 / mp.cbrt(k)) * mp.pi * ell + 1
    second = mp.mpf(351) / 50 * ell**2 * (mp.log(451 * ell**2 / eps) + 1)
    third = a * k * mp.log(32 / eps)
    return (first + second + third) / (mp.mpf("0.39") - mp.mpf("0.204") * eps)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kappa", KAPPAS)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_bound_is_that_of_an_independent_computation(alpha, kappa, precision):
    expected = bound_in_mpmath(alpha, kappa, precision)

    assert abs(query_bound(alpha, kappa, precision) / expected - 1) < 1e-12


def test_queries_grow_with_normalization_condition_number_and_precision():
    for (a, b), kappa, eps in itertools.product(itertools.pairwise(ALPHAS), KAPPAS, PRECISIONS):
        assert num_queries(a, kappa, eps) < num_queries(b, kappa, eps)
    for alpha, (a, b), eps in itertools.product(ALPHAS, itertools.pairwise(KAPPAS), PRECISIONS):
        assert num_queries(alpha, a, eps) < num_queries(alpha, b, eps)
    for alpha, kappa, (a, b) in itertools.product(ALPHAS, KAPPAS, itertools.pairwise(PRECISIONS)):
        assert num_queries(alpha, kappa, a) <= num_queries(alpha, kappa, b) * (1 + 1e-12)


def test_the_bound_alone_is_not_monotone_in_precision_so_the_best_use_of_it_counts():
    assert query_bound(1, 100, 0.2) > query_bound(1, 100, 0.01)
    assert num_queries(1, 100, 0.2) < query_bound(1, 100, 0.2)
    assert num_queries(1, 100, 1e-6) == query_bound(1, 100, 1e-6)


@pytest.mark.parametrize(("alpha", "kappa", "eps"), [(0.5, 10, 0.1), (1, 0.5, 0.1), (1, 10, 0.3)])
def test_a_bound_out_of_its_range_is_refused(alpha, kappa, eps):
    with pytest.raises(ValueError, match=r"alpha >= 1"):
        query_bound(alpha, kappa, eps)


# --- the type -------------------------------------------------------------------------

ASSUMED = QuantumAssumptions(gate_time_s=1e-9)
OTHER = QuantumAssumptions(gate_time_s=1e-12)


@pytest.mark.parametrize(
    "act",
    [
        lambda t: t + 1.0,
        lambda t: 1.0 + t,
        lambda t: t - 1.0,
        lambda t: 1.0 - t,
        lambda t: sum([t, t]),
        lambda t: t < 1.0,
        lambda t: t >= 1.0,
        lambda t: t > 1.0,
        lambda t: t / 1.0,
        lambda t: t * t,
        float,
        lambda t: math.fsum([t]),
        lambda t: max(t, 1.0),
    ],
)
def test_a_modeled_time_never_mixes_with_seconds(act):
    with pytest.raises(TypeError, match=r"it was not measured"):
        act(ModeledTime(2.0, ASSUMED))


def test_modeled_times_of_equal_assumptions_add_and_compare():
    times = [ModeledTime(1.0, ASSUMED), ModeledTime(3.0, ASSUMED)]

    assert ModeledTime.total(times) == ModeledTime(4.0, ASSUMED)
    assert times[1] / times[0] == 3
    assert times[0] < times[1]
    assert times[0] * 3 == times[1]
    with pytest.raises(TypeError, match="different assumptions"):
        times[0] + ModeledTime(1.0, OTHER)
    with pytest.raises(ValueError, match="no modeled times"):
        ModeledTime.total([])


def test_a_modeled_time_prints_what_it_rests_on():
    assert str(ModeledTime(2.0, ASSUMED)) == (
        "2 s modeled, not measured (gate time 1e-09 s, precision 0.01, read-out: amplitudes)"
    )


def test_reading_out_costs_what_the_amplitudes_are_and_breaks_even_later():
    none = QuantumAssumptions(gate_time_s=1e-9, readout="none")
    ratio = quantum_time(1024, 16, 100, ASSUMED).in_model_s
    ratio /= quantum_time(1024, 16, 100, none).in_model_s
    gates = num_gates(1024, 16, 100, none)

    assert ratio == pytest.approx(1024 / 0.01)
    assert break_even_gate_time_s(0.16, gates) * gates == pytest.approx(0.16)


@pytest.mark.parametrize(
    "wrong",
    [{"gate_time_s": 0}, {"gate_time_s": 1, "precision": 0.3}, {"gate_time_s": 1, "readout": "x"}],
)
def test_assumptions_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=r"must hold|readout"):
        QuantumAssumptions(**wrong)


# --- the simulation -------------------------------------------------------------------


@pytest.mark.parametrize("precision", [0.1, 0.01])
@pytest.mark.parametrize("kappa", [1.5, 5, 20])
@pytest.mark.parametrize("num", [4, 11, 32])
def test_the_simulated_solver_keeps_its_precision_and_counts_its_queries(num, kappa, precision):
    chance = torch.Generator().manual_seed(num)
    basis, _ = torch.linalg.qr(torch.randn(num, num, generator=chance, dtype=torch.float64))
    values = torch.logspace(0, math.log10(kappa), num, dtype=torch.float64)
    matrix = 7 * basis @ torch.diag(values) @ basis.T
    matrix = (matrix + matrix.T) / 2
    right = torch.randn(num, generator=chance, dtype=torch.float64)

    found = solve_by_walk(matrix, right, precision=precision)

    expected = torch.linalg.solve(matrix, right)
    assert float((found.direction - expected / expected.norm()).norm()) <= precision
    assert found.num_queries <= num_queries(1, kappa, precision)
    # The constant found in practice, 1.84 kappa / distance, to where the filter takes over.
    assert found.num_queries <= 10 * max(8, 1.84 * kappa / precision)


def test_what_a_simulation_cannot_do_is_refused():
    with pytest.raises(ValueError, match="up to 32 unknowns"):
        solve_by_walk(torch.eye(33), torch.ones(33), precision=0.1)
    with pytest.raises(ValueError, match="positive definite"):
        solve_by_walk(-torch.eye(4), torch.ones(4), precision=0.1)
