"""Branches that the attributes of a data set rule out are not read."""

import ast

import pytest

from steptime.measure.source.live_branches import live

WORDS = {"source": "random", "is_train": True, "size": 4, "path": None}


def left(test: str, words: dict[str, object] = WORDS) -> str:
    tree = ast.parse(f"if {test}:\n    yes()\nelse:\n    no()")
    return "; ".join(ast.unparse(node) for node in live(tree.body, words))


@pytest.mark.parametrize(
    ("test", "taken"),
    [
        ("self.source == 'random'", "yes()"),
        ("self.source != 'random'", "no()"),
        ("self.is_train", "yes()"),
        ("not self.is_train", "no()"),
        ("self.path is None", "yes()"),
        ("self.path is not None", "no()"),
        ("self.source in ('file', 'random')", "yes()"),
        ("self.source not in ['file', 'random']", "no()"),
        ("self.is_train and self.size == 5", "no()"),
        ("self.size == 5 or self.size == 4", "yes()"),
    ],
)
def test_a_condition_on_known_attributes_is_decided(test: str, taken: str) -> None:
    assert left(test) == taken


@pytest.mark.parametrize(
    "test",
    [
        "self.other == 'random'",
        "source == 'random'",
        "self.is_train and index == 0",
        "self.size > 3",
        "self.source.startswith('r')",
        "1 < self.size < 5",
    ],
)
def test_other_conditions_keep_both_branches(test: str) -> None:
    assert left(test).startswith("if ")


def test_a_chain_is_followed_to_its_branch() -> None:
    source = "a()\nif self.size == 1:\n    b()\nelif self.size == 4:\n    c()\nelse:\n    d()\ne()"

    found = [ast.unparse(node) for node in live(ast.parse(source).body, WORDS)]

    assert found == ["a()", "c()", "e()"]


def test_nothing_runs_behind_a_branch_that_returns() -> None:
    source = "if self.is_train:\n    return 1\nb()"

    assert [ast.unparse(node) for node in live(ast.parse(source).body, WORDS)] == ["return 1"]
