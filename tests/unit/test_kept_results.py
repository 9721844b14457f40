"""Which lines of a loop keep results of each step, and of which nothing is said."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

from steptime.diagnose.ailments.health.idle_weights import find_growing_graph
from steptime.measure.source.kept_results import find_kept
from steptime.measure.values.model.health import Health
from steptime.measure.values.model.training_health import KeptGraphs
from steptime.measure.values.observations import MemoryUse, Suspicion
from unit.builders import make_measurement, make_quantity, make_rank


def found_in(*lines: str, before: str = "", after: str = "") -> list[tuple[str, str]]:
    """Code and text of the places in a textbook loop with these lines after its backward."""
    body = ["output = model(x)", "loss = criterion(output, y)", "loss.backward()", *lines]
    text = f"total, kept = 0, []\n{before}\nfor x, y in loader:\n"
    text += "".join(f"    {line}\n" for line in body) + after
    source = text.splitlines()
    return [(code, source[line - 1].strip()) for code, line in find_kept(ast.parse(text))]


@pytest.mark.parametrize(
    "line",
    [
        "total += loss",
        "total = total + loss",
        "self.total += loss",
        "total += loss * 2",
        "total += loss.cpu()",
        "kept.append(loss)",
        "kept.append(output)",
        "if step % 10 == 0: kept.append(loss.mean())",
    ],
)
def test_a_result_with_its_graph_is_named(line):
    expected = line.partition(": ")[2] or line

    assert [code for code, _ in found_in(line)] == ["kept_graph"]
    assert expected in found_in(line)[0][1]


@pytest.mark.parametrize(
    "line",
    [
        "kept.append(output.detach())",
        "kept.append(loss.data)",
        "kept.append(output.detach().cpu())",
    ],
)
def test_a_list_of_tensors_is_known_as_such(line):
    assert found_in(line) == [("kept_tensors", line)]


@pytest.mark.parametrize(
    "line",
    [
        "total += loss.item()",
        "total += float(loss)",
        "total += loss.detach()",
        "total += loss.item() * x.size(0)",
        "kept.append(loss.item())",
        "kept.append(output.argmax(1))",
        "kept.append(y)",
        "losses.update(loss)",
        "step += 1",
    ],
)
def test_numbers_and_what_has_no_graph_are_not_named(line):
    assert found_in(line) == []


@pytest.mark.parametrize(
    ("lines", "around"),
    [
        (("kept.append(loss)", "kept.clear()"), {}),
        (("kept = []", "kept.append(loss)"), {}),
        (("kept.append(loss)",), {"before": "kept = deque(maxlen=10)"}),
        (("total += loss",), {"after": "total.backward()\n"}),
        (("kept.append(loss)",), {"after": "sum(kept).backward()\n"}),
        (("kept.append(loss)",), {"after": "all = torch.stack(kept).sum()\nall.backward()\n"}),
    ],
    ids=str,
)
def test_what_is_emptied_or_goes_backward_is_not_named(lines, around):
    assert found_in(*lines, **around) == []


def test_a_graph_that_is_kept_on_purpose_is_not_named():
    assert found_in("total += loss", "penalty.backward(retain_graph=True)") == []


def test_a_loop_that_calls_no_backward_is_not_judged():
    text = "for x in loader:\n    loss = model(x)\n    total += loss\ntotal.backward()\n"

    assert find_kept(ast.parse(text)) == []


def test_the_finding_of_a_growing_graph_names_the_line_that_keeps_it():
    kept = KeptGraphs(update=64, first_marked=9, last_marked=33, are_kept=True)
    line = Suspicion(code="kept_graph", where="train.py:12", text="total += loss")
    health = Health(num_seen=64, kept_graphs=kept)
    found = find_growing_graph(make_measurement(health=health, suspicions=(line,)))

    assert (found.where, found.where_text) == ("train.py:12", "total += loss")


@pytest.mark.parametrize(("slope", "is_found"), [(2000.0, True), (0.0, False), (None, True)])
def test_graphs_grow_only_where_memory_does(slope, is_found):
    kept = KeptGraphs(update=64, first_marked=9, last_marked=33, are_kept=True)
    trend = None if slope is None else make_quantity(slope, half_width=1000.0)
    memory = MemoryUse(
        first_bytes=1, last_bytes=2, peak_bytes=2, num_samples=9, slope_bytes_per_step=trend
    )
    rank = replace(make_rank(), host_memory=memory)
    health = Health(num_seen=64, kept_graphs=kept)

    found = find_growing_graph(make_measurement(health=health, ranks=(rank,)))

    assert (found is not None) is is_found
