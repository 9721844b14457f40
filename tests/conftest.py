"""The one option of the tests: `pytest --update-golden` rewrites the golden files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")


@pytest.fixture
def check_golden(request: pytest.FixtureRequest) -> Callable[[Path | str, str], None]:
    """A check that a golden file (by name, or by path) holds this text; or its rewriting."""

    def check(name: Path | str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return check
