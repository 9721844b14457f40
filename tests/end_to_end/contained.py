"""Starts children behind walls, and says which tiers this machine has, by probing."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from functools import cache
from pathlib import Path

import psutil
import pytest

from steptime.core.process_end import ProcessEnd
from steptime.errors import ContainmentError
from steptime.isolate.child import ContainedChild, start_contained
from steptime.isolate.probe import probe
from steptime.isolate.tiers import Containment, Tier

LIMIT_S = 120


@cache
def containment(tier: Tier, *, share_network: bool = False) -> Containment | str:
    """What a probe finds of this tier and no better one, or why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = probe(Path(folder), best=tier, share_network=share_network)
        except ContainmentError as error:
            return str(error)
    return found if found.tier is tier else "; ".join(found.reasons)


def require(tier: Tier, *, share_network: bool = False) -> Containment:
    found = containment(tier, share_network=share_network)
    if isinstance(found, str):
        pytest.skip(f"not {tier.value} here: {found}")
    return found


def start(
    there: Path,
    *argv: str | Path,
    within: Containment,
    stdin: Path | None = None,
    memory_bytes: int | None = None,
    **variables: str,
) -> ContainedChild:
    """Start a command in a folder; its own folder is `trial` in it."""
    folder = there / "trial"
    folder.mkdir(exist_ok=True, parents=True)
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "STEPTIME"))}
    child = start_contained(
        tuple(str(word) for word in argv),
        own | {"OMP_NUM_THREADS": "1"} | variables,
        cwd=there,
        folder=folder,
        containment=within,
        stdin=stdin,
        memory_bytes=memory_bytes,
    )
    assert isinstance(child, ContainedChild), child
    return child


def run(there: Path, *argv: str | Path, within: Containment, **options: object) -> ProcessEnd:
    """The same, waited for; killed if it takes too long."""
    child = start(there, *argv, within=within, **options)  # type: ignore[arg-type]
    try:
        end = child.wait(LIMIT_S)
    finally:
        child.kill()
    assert end is not None, (there / "trial" / "stderr").read_text()
    return end


def fingerprint(there: Path) -> dict[str, tuple[object, ...]]:
    """Bytes, rights, owner and times of all that is in a folder, but the child's own in it."""
    found = {}
    for path in sorted(there.rglob("*")):
        inside = path.relative_to(there)
        if inside.parts[0] == "trial":
            continue
        facts = path.lstat()
        is_read = stat.S_ISREG(facts.st_mode) and os.access(path, os.R_OK)
        text = path.read_bytes() if is_read else os.fsencode(str(path))
        digest = hashlib.sha256(text).hexdigest()
        found[str(inside)] = (
            digest, facts.st_mode, facts.st_uid, facts.st_mtime_ns, facts.st_nlink
        )  # fmt: skip
    return found


def told(there: Path) -> tuple[str, str]:
    """What the child said."""
    folder = there / "trial"
    return (folder / "stdout").read_text(), (folder / "stderr").read_text()


def living(root: int, command: str) -> list[psutil.Process]:
    """The processes below `root` whose command line begins with these words, or names this path."""
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(root).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                line = " ".join(process.cmdline())
                if line.startswith(command) or (command.startswith("/") and command in line):
                    found.append(process)
    return found
