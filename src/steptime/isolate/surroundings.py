"""What a child has besides its walls: its environment, and places of its own.

It runs in the launcher, before the walls are built.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .broker.broker_files import SHARED_MEMORY
from .left.left_folders import PREFIX, hold
from .plan_door import NAME
from .publish import free_ports, quiet_environment
from .tiers import Tier

_PACKAGE = Path(__file__).resolve().parent.parent
_SITE = _PACKAGE / "inject" / "site"
_OWN_SITE, _TOLD = "site", "told"  # in the child's folder; launch/shims.py knows the first
_OURS = (
    *("STEPTIME_RUN", "STEPTIME_GUEST", "STEPTIME_DOOR", "STEPTIME_SEED", "STEPTIME_TFDATA"),
    *("STEPTIME_REDIRECT", "STEPTIME_REDIRECT_FILE"),
)
_REDIRECT = _PACKAGE / "guest" / "redirect" / "__init__.py"
_HIDDEN = "/tmp/steptime-private"  # if isolated: a path that only the child has
SHADOW = "shadow"  # in the child's folder: what was redirected; the same name as in guest/redirect

# Caches that libraries write through compilers and other programs, which cannot be redirected. They
# start empty; every other cache is read where it is.
_OWN_CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the child has besides its walls.

    Attributes:
        environment: of the command.
        private: a folder of its own.
        folders: of its own, where it may write; they are removed afterwards.
        memory: one of them, for shared memory; None where it has /dev/shm to itself.
        plan: what each process is told at its start, and nobody else; None for nothing.
    """

    environment: Mapping[str, str]
    private: str
    folders: tuple[str, ...] = ()
    memory: str | None = None
    plan: str | None = None

    def remove(self) -> None:
        """Remove the folders."""
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)


def make_surroundings(
    environment: Mapping[str, str], *, folder: str, tier: Tier, share_network: bool
) -> Surroundings:
    """Make what the child needs besides its walls.

    Args:
        environment: what the command would get.
        folder: of the child.
        tier: its walls.
        share_network: it uses the machine's network.
    """
    folders: tuple[str, ...] = () if tier is Tier.ISOLATED else (_make_folder("/tmp"),)
    private = folders[0] if folders else _HIDDEN
    ours = quiet_environment(environment, private, share_network=share_network)
    if share_network:
        ours |= free_ports(environment)
    if tier is not Tier.UNSAFE:
        ours |= _let_in(folder, private, tier)
    memory = None
    if tier is Tier.GUARDED:
        memory = _make_memory(folder, private)
        folders += () if memory.startswith(private) else (os.path.dirname(memory),)
        # A cache inside the child's folder may be written there.
        mine = [name for name in _OWN_CACHES if environment.get(name, "").startswith(folder)]
        ours |= {k: v for k, v in _guarded(private).items() if k not in mine}
    plan = ours.pop("STEPTIME_PLAN", None)
    if plan is not None:
        ours["STEPTIME_DOOR"] = os.path.join(private, NAME)
    return Surroundings(
        environment=_hide_ours(ours, folder),
        private=private,
        folders=folders,
        memory=memory,
        plan=plan,
    )


def _hide_ours(environment: Mapping[str, str], folder: str) -> Mapping[str, str]:
    """Return an environment in which nothing shows what we ask of this child.

    Our variables go to a file beside a copy of `sitecustomize.py`, so that children of all kinds
    have the same names in their environment.
    """
    told = {name: environment[name] for name in _OURS if name in environment}
    if not told or os.pathsep in folder:  # such a folder cannot be on a search path
        return environment
    site = os.path.join(folder, _OWN_SITE)
    os.makedirs(site, exist_ok=True)
    shutil.copy(_SITE / "sitecustomize.py", site)
    text = "\0".join(f"{name}={value}" for name, value in told.items())
    Path(site, _TOLD).write_bytes(os.fsencode(text))
    ours = {name: value for name, value in environment.items() if name not in told}
    search = ours.get("PYTHONPATH", "").split(os.pathsep)
    ours["PYTHONPATH"] = os.pathsep.join([site, *(p for p in search if p not in ("", str(_SITE)))])
    return ours


def _make_folder(parent: str) -> str:
    # Short, because multiprocessing puts sockets in it, whose paths end at 107 characters.
    folder = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
    hold(folder)
    return folder


def _make_memory(folder: str, private: str) -> str:
    """Make the folder of shared memory; the shadow shows it as what it is for the script."""
    has_memory = os.access(SHARED_MEMORY, os.W_OK | os.X_OK)
    memory = os.path.join(_make_folder(SHARED_MEMORY) if has_memory else private, "memory")
    os.mkdir(memory)
    shadow = os.path.join(folder, SHADOW)
    link = f"{shadow}/files{SHARED_MEMORY}"
    os.makedirs(os.path.dirname(link), exist_ok=True)
    hold(shadow)
    os.symlink(memory, link)
    return memory


def _let_in(folder: str, private: str, tier: Tier) -> dict[str, str]:
    """Return the variables that make each Python process of the child load guest/redirect."""
    places = (folder, private) if tier is Tier.GUARDED else ("renames", folder)
    return {
        "STEPTIME_REDIRECT": os.pathsep.join(places),
        "STEPTIME_REDIRECT_FILE": str(_REDIRECT),
        # Compiled files are read where they are: a separate folder would compile all of torch
        # again. What a trial compiles is thrown away, and the guest's imports are not the script's.
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _guarded(private: str) -> dict[str, str]:
    return {
        "TMPDIR": private,
        **{name: os.path.join(private, name.lower()) for name in _OWN_CACHES},
    }
