"""How many rows of an embedding have a gradient, and what is said of the others."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from steptime.diagnose.ailments.waste.dense_updates import find_dense_updates
from steptime.diagnose.values.finding import Severity
from steptime.measure.health.health_record import read_weights
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.health import Health
from steptime.measure.values.model.training_health import EmbeddingUse
from steptime.report.words.run.run_words import describe_finding
from unit.builders import make_measurement

USERS = EmbeddingUse(
    name="users.weight",
    optimizer="Adam",
    moves=True,
    rows=400_000,
    touched=256,
    elements=12_800_000,
)
NONE = {"num": 0, "elements": 0, "names": []}
LINE = {"n": 32, "num": 4, "elements": 16_000_000, "none": NONE, "zero": NONE, "unused": NONE}


def measured(*tables: EmbeddingUse, optimizer: float = 0.4) -> Measurement:
    made = make_measurement()
    phases = [replace(one, fraction=optimizer) for one in made.phases if one.name == "optimizer"]
    use = replace(read_weights(LINE), embeddings=tables)
    return replace(made, phases=tuple(phases), health=Health(num_seen=1, weights=use))


def test_rows_without_a_gradient_are_named_with_their_share() -> None:
    items = replace(USERS, name="items.weight", rows=100_000, elements=3_200_000)
    found = find_dense_updates(measured(USERS, items))

    assert found is not None
    assert found.severity is Severity.CRITICAL
    text = describe_finding(found, 1.0)
    assert "updates 500,000 rows of users.weight, items.weight for 512 with a gradient" in text
    assert "99.9 % of the rows have none (Adam moves them by momentum or decay alone)" in text
    still = find_dense_updates(measured(replace(USERS, optimizer="SGD", moves=False)))
    assert still is not None
    assert "(SGD leaves them as they are)" in describe_finding(still, 1.0)


@pytest.mark.parametrize(
    ("table", "optimizer"),
    [
        (replace(USERS, touched=40_001), 0.4),
        (replace(USERS, elements=7_900_000), 0.4),
        (USERS, 0.1),
    ],
)
def test_few_rows_few_parameters_or_a_short_update_are_not_worth_a_word(
    table: EmbeddingUse, optimizer: float
) -> None:
    assert find_dense_updates(measured(table, optimizer=optimizer)) is None
    assert find_dense_updates(make_measurement()) is None


# -- what the guest counts


def counted(make: Any, num_updates: int = 1, kind: str = "Adam", **options: Any) -> list[Any]:
    torch = pytest.importorskip("torch")
    from steptime.guest.sense.embedding_rows import EmbeddingRows

    torch.manual_seed(0)
    rows, model = EmbeddingRows(torch), make(torch)
    optimizer = getattr(torch.optim, kind)(model.parameters(), 0.1, **options)
    for number in range(num_updates):
        model(torch.arange(8 + number)).sum().backward()
        rows.see(optimizer, [model])
        optimizer.step()
        optimizer.zero_grad()
    told: list[Any] = json.loads(json.dumps(rows.tell({id(model.weight): "weight"})))
    return told


def test_the_most_rows_of_two_updates_are_counted() -> None:
    (told,) = counted(lambda torch: torch.nn.Embedding(20_000, 3), num_updates=4)

    assert (told["name"], told["optimizer"], told["moves"]) == ("weight", "Adam", True)
    assert (told["rows"], told["touched"], told["elements"]) == (20_000, 9, 60_000)


def test_an_optimizer_without_momentum_leaves_rows_alone() -> None:
    assert counted(lambda torch: torch.nn.Embedding(20_000, 3), kind="SGD")[0]["moves"] is False
    with_momentum = counted(lambda torch: torch.nn.Embedding(20_000, 3), kind="SGD", momentum=0.9)
    assert with_momentum[0]["moves"] is True


def test_sparse_gradients_and_small_tables_are_not_counted() -> None:
    sparse = counted(lambda torch: torch.nn.Embedding(20_000, 3, sparse=True), kind="SparseAdam")
    assert sparse == counted(lambda torch: torch.nn.Embedding(9_999, 3)) == []


def test_of_a_very_large_gradient_some_rows_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr("steptime.guest.sense.embedding_rows.MAX_ELEMENTS", 20_000)
    monkeypatch.setattr("steptime.guest.sense.embedding_rows.CHUNK", 1000)

    (told,) = counted(lambda torch: torch.nn.Embedding(20_000, 3))
    assert told["touched"] == 8  # rows 0 and 4, of every fourth
