"""What a store keeps, of every kind: runs, studies, fits and the rest, found by id and listed.

In: a store. Out: `Stored`, a folder with its kind. What is in the folder is read elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from steptime.app.stored.run_listing import find_run, is_run_id, match_id
from steptime.errors import NotFoundError, StoreError

KINDS = {
    "runs": "run",
    "studies": "study",
    "fits": "fit",
    "plans": "plan",
    "benches": "bench",
    "sweeps": "sweep",
    "verifications": "verification",
}
"""Folders of a store, and what one thing in them is called."""

SHOWN = {"runs": "", "studies": "study.json", "fits": "fit.json"}
"""Those whose report can be printed again, and the file that it is made from."""

_NOT_STAMPED = ("sweeps", "verifications")  # named by what they are about


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One thing in a store: its kind (a key of `KINDS`), its id, and its folder."""

    kind: str
    id: str
    folder: Path

    @property
    def store(self) -> Path:
        """The store that holds it."""
        return self.folder.parent.parent


def list_kept(store: Path, kinds: Sequence[str] = tuple(KINDS)) -> tuple[Stored, ...]:
    """Return all that is in a store, by kind and then by id, the oldest first.

    Raises:
        StoreError: the store cannot be read.
    """
    found: list[Stored] = []
    for kind in kinds:
        try:
            with os.scandir(store / kind) as entries:
                names = [one.name for one in entries if one.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreError(f"the store cannot be read: {error}") from error
        names = [name for name in sorted(names) if is_run_id(name) or kind in _NOT_STAMPED]
        found += [Stored(kind=kind, id=name, folder=store / kind / name) for name in names]
    return tuple(found)


def find_kept(store: Path, wanted: str) -> Stored:
    """Return what can be shown again and has this id or beginning of an id, or is the newest.

    Args:
        store: where it is.
        wanted: an id, the beginning of one, `last` for the newest of all, `last~1` for the run
            before the last; or a kind (`run`, `study`, `fit`) for the newest of it.

    Raises:
        NotFoundError: there is none, or several begin like this.
    """
    of_kind = tuple(kind for kind in SHOWN if KINDS[kind] == wanted)
    kinds = of_kind or tuple(SHOWN)
    kept = {
        one.id: one for one in list_kept(store, kinds) if (one.folder / SHOWN[one.kind]).exists()
    }
    if not kept:
        verb = "tune" if kinds[0] == "studies" else KINDS[kinds[0]]
        hint = f"Make one: steptime {verb} -- python train.py"
        raise NotFoundError(f"there are no {' or '.join(kinds)} in {store}.", hint=hint)
    if of_kind or wanted == "last":
        newest = max(kept.values(), key=lambda one: (one.id[:_STAMP], one.kind == "runs"))
        wanted = newest.id if newest.kind != "runs" else find_run(store, "last").run_id
    elif wanted.startswith("last~") and "runs" in kinds:
        wanted = find_run(store, wanted).run_id
    return kept[match_id(store, wanted, sorted(kept), what=" or ".join(KINDS[k] for k in kinds))]


_STAMP = len("20261120-101500")
