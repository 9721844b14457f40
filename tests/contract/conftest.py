"""What the contract's tests do without: minutes of a C++ compiler."""

import importlib.util

import pytest


@pytest.fixture(autouse=True)
def graphs_that_run_as_they_are(monkeypatch):
    """torch.compile makes its graphs, and runs them without compiling them further."""
    if importlib.util.find_spec("torch") is None:
        yield
        return
    import torch

    make = torch.compile
    monkeypatch.setattr(torch, "compile", lambda model, **_: make(model, backend="aot_eager"))
    yield
    torch.compiler.reset()
