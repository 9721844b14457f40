"""When the diagnosis of a specimen counts as right."""

from __future__ import annotations

import pytest

from end_to_end.ailments import AILMENTS, judge


def finding(kind, cause, *, severity="warning", where=None):
    return {"kind": kind, "cause": cause, "severity": severity, "where": where}


FETCH = finding("INPUT_BOUND", "fetch")
LEAK = finding(None, "leak")
NEIGHBOR = finding("CONTENDED", "neighbor")
BALANCED = finding("BALANCED", None, severity="info")


def judge_as(name, kind, *findings):
    return judge(AILMENTS[name], {"kind": kind, "findings": list(findings)})


@pytest.mark.parametrize("name", AILMENTS)
def test_a_marked_line_is_marked_once(name):
    assert AILMENTS[name].path.read_text().count("# ailment") <= 1


def test_an_ailment_is_right_if_it_alone_is_found_and_primary():
    assert judge_as("slow fetch", "INPUT_BOUND", FETCH).is_right


def test_a_busy_machine_may_stand_beside_any_ailment():
    assert judge_as("slow fetch", "INPUT_BOUND", FETCH, NEIGHBOR).is_right
    assert judge_as("memory leak", "CONTENDED", NEIGHBOR, LEAK).is_right
    assert judge_as("healthy", "CONTENDED", NEIGHBOR, BALANCED).is_right


def test_a_neighbor_of_the_ailment_beside_it_is_wrong():
    gc = finding("HOST_BOUND", "gc")

    judgement = judge_as("slow fetch", "INPUT_BOUND", FETCH, gc)

    assert not judgement.is_right
    assert judgement.beside == ("HOST_BOUND/gc",)


def test_the_right_kind_with_another_cause_is_wrong():
    assert not judge_as("costly collate", "INPUT_BOUND", FETCH).is_right


def test_an_ailment_found_at_info_is_not_found():
    weak = finding("INPUT_BOUND", "fetch", severity="info")

    assert not judge_as("slow fetch", "INPUT_BOUND", weak).is_right


def test_an_ailment_that_is_not_primary_is_wrong():
    assert not judge_as("slow fetch", "CONTENDED", NEIGHBOR, FETCH).is_right


def test_what_is_no_bottleneck_leaves_the_primary_kind_without_one():
    assert judge_as("memory leak", "COMPUTE_BOUND", LEAK).is_right
    assert judge_as("memory leak", "INCONCLUSIVE", LEAK, finding("INCONCLUSIVE", "noise")).is_right
    assert not judge_as("memory leak", "INPUT_BOUND", LEAK, FETCH).is_right
    unattributed = finding("INCONCLUSIVE", "unattributed_time")
    assert not judge_as("memory leak", "INCONCLUSIVE", LEAK, unattributed).is_right


def test_a_healthy_script_is_balanced_and_nothing_else():
    assert judge_as("healthy", "BALANCED", BALANCED).is_right
    assert not judge_as("healthy", "COMPUTE_BOUND").is_right
    assert not judge_as("healthy", "BALANCED", BALANCED, LEAK).is_right


def test_a_line_is_right_if_where_names_it_or_spans_it():
    ailment = AILMENTS["augmentation"]
    line = ailment.line

    def is_right(where):
        found = finding("INPUT_BOUND", "preprocessing", where=where)
        return judge_as("augmentation", "INPUT_BOUND", found).is_line_right

    assert is_right(f"/home/me/augmentation.py:{line}")
    assert is_right(f"augmentation.py:{line - 1}-{line + 1}")
    assert not is_right(f"augmentation.py:{line + 1}")
    assert not is_right(f"other.py:{line}")
    assert not is_right(None)


def test_where_no_line_is_marked_none_can_be_right():
    assert judge_as("healthy", "BALANCED", BALANCED).is_line_right is None
