"""The leave to look into the command: asked for where it is needed, and harmless everywhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from steptime.launch.ptrace_leave import load_permit


@pytest.mark.parametrize("scope", ["0", "2", "3", ""])
def test_where_no_leave_is_asked_for_none_is_given(tmp_path: Path, scope: str) -> None:
    path = tmp_path / "ptrace_scope"
    path.write_text(f"{scope}\n")

    assert load_permit(path) is None


def test_without_the_file_none_is_given(tmp_path: Path) -> None:
    assert load_permit(tmp_path / "missing") is None


def test_where_ancestors_alone_may_look_it_is_given_and_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "ptrace_scope"
    path.write_text("1\n")

    permit = load_permit(path)

    assert permit is not None
    permit(os.getpid())  # a kernel without Yama refuses, and nothing comes of it
