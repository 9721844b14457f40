"""What a child has besides its walls: its environment, and places of its own.

It runs in the launcher, before the walls are built.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .publish import free_ports, quiet_environment
from .tiers import Tier

_PACKAGE = Path(__file__).resolve().parent.parent
_SITE = _PACKAGE / "inject" / "site"
_REDIRECT = _PACKAGE / "guest" / "redirect" / "__init__.py"
_HIDDEN = "/tmp/steptime-private"  # if isolated: a path that only the child has
SHADOW = "shadow"  # in the child's folder: what was redirected; the same name as in guest/redirect

# Caches that libraries write through compilers and other programs, which cannot be redirected. They
# start empty; every other cache is read where it is.
_OWN_CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The environment, and the folder to remove afterwards, if there is one."""

    environment: Mapping[str, str]
    private: str
    temporary: str | None = None


def make_surroundings(
    environment: Mapping[str, str], *, folder: str, tier: Tier, network: str
) -> Surroundings:
    """Make what the child needs besides its walls.

    Args:
        environment: what the command would get.
        folder: of the child.
        tier: its walls.
        network: `own`, `host`, or `shared`, which is the host's because the user asked for it.
    """
    temporary = None if tier is Tier.ISOLATED else _make_temporary()
    private = temporary or _HIDDEN
    ours = quiet_environment(environment, private, share_network=network == "shared")
    if network != "own":
        ours |= free_ports(environment)
    if tier is not Tier.UNSAFE:
        ours |= _let_in(environment, f"{folder}{os.pathsep}{private}", tier)
    if tier is Tier.GUARDED:
        # A cache inside the child's folder may be written there.
        mine = [name for name in _OWN_CACHES if environment.get(name, "").startswith(folder)]
        ours |= {k: v for k, v in _guarded(private).items() if k not in mine}
    return Surroundings(environment=ours, private=private, temporary=temporary)


def _make_temporary() -> str:
    # Short, because multiprocessing puts sockets in it, whose paths end at 107 characters.
    return tempfile.mkdtemp(prefix="steptime-", dir="/tmp")


def _let_in(environment: Mapping[str, str], folders: str, tier: Tier) -> dict[str, str]:
    """Return the variables that make each Python process of the child load guest/redirect."""
    ours = {
        "STEPTIME_REDIRECT": folders if tier is Tier.GUARDED else "renames",
        "STEPTIME_REDIRECT_FILE": str(_REDIRECT),
    }
    search = environment.get("PYTHONPATH")
    places = search.split(os.pathsep) if search else []
    if str(_SITE) not in places:
        ours["PYTHONPATH"] = os.pathsep.join((str(_SITE), *places))
    return ours


def _guarded(private: str) -> dict[str, str]:
    return {
        "TMPDIR": private,
        # Compiled files are read where they are; a separate folder would compile all of torch
        # again.
        "PYTHONDONTWRITEBYTECODE": "1",
        **{name: os.path.join(private, name.lower()) for name in _OWN_CACHES},
    }
