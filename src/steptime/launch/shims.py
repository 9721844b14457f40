"""The interpreter shims: small shell scripts that are put in front of PATH.

A shell script with `PYTHONPATH=. python train.py` drops our folder. So each interpreter's name on
PATH gets a script of the same name, which puts the folder back in front and becomes the next
interpreter of that name. In: folders. Out: the names that got a shim.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from pathlib import Path

INTERPRETERS = ("python", "python3", *(f"python3.{minor}" for minor in range(6, 31)))
"""Names that get a shim if they are on PATH; an interpreter with another name gets none."""

_TEMPLATE = """\
#!/bin/sh
# Written by `steptime run`: lets its guest in, then becomes the next @NAME@ on PATH.
name=@NAME@ site=@SITE@ own=@OWN@ here=@HERE@ first=@FIRST@
[ -d "$own" ] && site=$own  # of a contained child
case ":${PYTHONPATH-}:" in
"::") PYTHONPATH=$site ;;
":$site:"*) ;;
*) PYTHONPATH=$site:$PYTHONPATH ;;
esac
export PYTHONPATH
# Another tool's shim may search PATH too, find this one and come back, in the same process
# and forever. A Python that starts itself again seems the same, but does it once or twice.
round=1 skip=
case ${PYTHON_SHIM-} in
"$$:"*)
    last=${PYTHON_SHIM#*:}
    round=$((${last%%:*} + 1))
    [ "$round" -gt 3 ] && skip=${last#*:}
    ;;
esac
# If its folder is not on PATH, `which` gave its path to somebody before PATH was cleaned.
case ":${PATH-}:" in
*":$here:"*) ;;
*) [ -x "$first" ] && exec "$first" "$@" ;;
esac
search=$PATH:
while [ -n "$search" ]; do
    folder=${search%%:*} search=${search#*:}
    next=${folder:-.}/$name
    if [ -n "$skip" ]; then
        [ "$next" = "$skip" ] && skip=
    elif [ "$folder" != "$here" ] && [ -f "$next" ] && [ -x "$next" ]; then
        PYTHON_SHIM=$$:$round:$next
        export PYTHON_SHIM
        exec "$next" "$@"
    fi
done
echo "$name: command not found" >&2
exit 127
"""


def write_shims(folder: Path, site: Path, search: Iterable[str]) -> tuple[str, ...]:
    """Make a shim for each interpreter on the search path; return the names that got one.

    Args:
        folder: where they go; it is created, and must come first on PATH.
        site: the folder that each shim puts first on PYTHONPATH.
        search: the folders of the user's PATH.
    """
    places = tuple(search)
    found = {name: _first(places, name) for name in INTERPRETERS}
    names = tuple(name for name, first in found.items() if first is not None)
    folder.mkdir()
    for name in names:
        path = folder / name
        words = {"NAME": name, "SITE": site, "HERE": folder, "FIRST": found[name]}
        words["OWN"] = folder.parent / "site"
        text = _TEMPLATE
        for word, value in words.items():
            text = text.replace(f"@{word}@", shlex.quote(str(value)))
        path.write_bytes(os.fsencode(text))
        path.chmod(0o755)
    return names


def _first(places: tuple[str, ...], name: str) -> str | None:
    """Return the program of that name that a shell would run."""
    found = (os.path.join(place, name) for place in places if _is_program(place, name))
    return next((os.path.abspath(path) for path in found), None)


def _is_program(folder: str, name: str) -> bool:
    path = os.path.join(folder, name)
    return os.path.isfile(path) and os.access(path, os.X_OK)
