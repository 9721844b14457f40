"""Scripts with the places that a study would have noted in them, for the tests of patches."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from steptime.core.devices.machine_identity import MachineIdentity
from steptime.levers import load_all
from steptime.patch.make_patch import make_patch
from steptime.patch.values import Handover
from steptime.tune.recipe.recipe_file import make_recipe
from steptime.tune.values.recipe_values import Recipe, Script
from steptime.tune.values.site_values import EditSite, EditSites, SourcePlace
from steptime.tune.values.study_values import Applied
from study_cases import faster

LEVERS = {lever.name: lever for lever in load_all()}

FUSED = Applied(name="fused_optimizer", settings={"implementation": "fused"})
BF16 = Applied(name="autocast", settings={"dtype": "bf16"})
CHANNELS_LAST = Applied(name="channels_last", settings={})
COMPILE = Applied(name="compile", settings={"mode": "default"})
WORKERS = Applied(
    name="dataloader",
    settings={"num_workers": 2, "persistent_workers": True, "prefetch_factor": 2},
)
WHOLE = Applied(name="whole_batch_fetch", settings={})
CACHE = Applied(
    name="dataset_cache",
    settings={"limit_bytes": 1 << 30, "is_on_disk": False, "has_draws": False},
)
PRELOADED = Applied(name="preloaded_samples", settings={"limit_bytes": 1 << 30})
MATMUL = Applied(name="matmul_precision", settings={"precision": "medium"})
ONE_THREAD = Applied(name="num_threads", settings={"num_threads": 1})
PASSIVE = Applied(name="wait_policy", settings={})

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Conv2d(1, 1, 1)
data = TensorDataset(torch.zeros(4, 1, 2, 2), torch.zeros(4, 1, 2, 2))
loader = DataLoader(data, batch_size=2)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        out = model(x)
        loss = nn.functional.mse_loss(out, y)
        loss.backward()
        optimizer.step()
"""
"""A plain script; `sites_of` finds what is made and called in it."""

TRAITS = {
    "optimizer": (),
    "loader": ("dataset:TensorDataset", "tensor_dataset"),
    "model_call": ("image:0", "output:float"),
}
OPTIMIZERS = ("AdamW", "Adam", "SGD", "Opt")
LOADERS = ("DataLoader", "DL")
MODELS = ("model", "net", "self.model", "netD")


def sites_of(
    source: bytes | str, *, file: str = "train.py", has_columns: bool = True, **traits: Any
) -> tuple[EditSite, ...]:
    """The sites of a script by the names that it calls; `traits` are those of a kind."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    found = []
    for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
        words = ast.unparse(call.func)
        last = words.rpartition(".")[2]
        what = "optimizer" if last in OPTIMIZERS else "loader" if last in LOADERS else None
        what = "model_call" if words in MODELS else what
        if what is not None:
            found.append(
                EditSite(
                    what=what,
                    name=last,
                    place=place_of(call, file, has_columns=has_columns),
                    callers=tuple(_callers(calls, call, source, file)),
                    traits=traits.get(what, TRAITS[what]),
                )
            )
    return tuple(found)


def place_of(call: ast.Call, file: str, *, has_columns: bool = True) -> SourcePlace:
    if not has_columns:
        return SourcePlace(file=file, line=call.lineno)
    return SourcePlace(
        file=file,
        line=call.lineno,
        column=call.col_offset,
        end_line=call.end_lineno,
        end_column=call.end_col_offset,
    )


def _callers(
    calls: Sequence[ast.Call], call: ast.Call, source: bytes | str, file: str
) -> Iterator[SourcePlace]:
    """The call of the function around a call, if there is one, and so on."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and any(
            isinstance(inner, ast.Call)
            and (inner.lineno, inner.col_offset) == (call.lineno, call.col_offset)
            for inner in ast.walk(node)
        ):
            for other in calls:
                if ast.unparse(other.func).rpartition(".")[2] == node.name:
                    yield place_of(other, file)
                    yield from _callers(calls, other, source, file)
                    return


def hash_of(source: bytes) -> str:
    return f"sha256:{hashlib.sha256(source).hexdigest()}"


def recipe_of(
    source: bytes | str,
    *state: Applied,
    sites: tuple[EditSite, ...] | None = None,
    file: str = "train.py",
    command: tuple[str, ...] = ("python", "train.py"),
) -> Recipe:
    """The recipe of a script with one file."""
    data = source if isinstance(source, bytes) else source.encode()
    recipe = make_recipe(faster(), script=Script(command=command), machine=MachineIdentity())
    found = sites_of(data, file=file) if sites is None else sites
    known = EditSites(files={file: hash_of(data)}, sites=found)
    return replace(recipe, levers=state, sites=known)


def patch_of(folder: Path, recipe: Recipe, libraries: dict[str, str] | None = None) -> Handover:
    return make_patch(recipe, levers=LEVERS, folder=folder, libraries=libraries or {})


def patched(folder: Path, source: bytes | str, *state: Applied, **given: Any) -> Handover:
    """The edit of a script that is written into a folder."""
    data = source if isinstance(source, bytes) else source.encode()
    (folder / "train.py").write_bytes(data)
    return patch_of(folder, recipe_of(source, *state, **given))


def changed_lines(handover: Handover) -> list[str]:
    """What a diff takes out and puts in, without the names of files."""
    lines = handover.diff.decode().splitlines()
    return [line for line in lines if line[:1] in "+-" and line[:4] not in ("--- ", "+++ ")]
