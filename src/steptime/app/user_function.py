"""Functions of the user's, which are named as FILE.py:FUNCTION."""

from __future__ import annotations

from pathlib import Path

from steptime.errors import NotFoundError, UsageError


def function_named(name: str) -> tuple[Path, str]:
    """Return the file and the function of `FILE.py:FUNCTION`.

    Raises:
        UsageError: it is not written like this.
        NotFoundError: there is no such file.
    """
    path, _, function = name.rpartition(":")
    if not path.endswith(".py") or not function.isidentifier():
        raise UsageError(
            f"`{name}` names no function.", hint="Write FILE.py:FUNCTION, as model.py:build."
        )
    if not Path(path).is_file():
        raise NotFoundError(f"there is no file `{path}`.", hint="Write FILE.py:FUNCTION.")
    return Path(path), function
