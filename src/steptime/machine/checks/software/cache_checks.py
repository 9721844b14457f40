"""Checks where libraries keep what they compile: a home on the network serves it to all ranks.

In: facts. Out: judgements.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from steptime.diagnose.values.finding import Severity
from steptime.machine.checks.check_row import (
    CheckRow,
    Judgement,
    Value,
    clean,
    fires,
    not_checked,
    spans_machines,
)
from steptime.machine.checks.remedy import in_shell
from steptime.machine.storage import find_mount
from steptime.machine.values.check_facts import CheckFacts
from steptime.machine.values.check_values import Certainty, Command, Cost
from steptime.machine.values.node_facts import CacheFolder

_CACHES = (
    "https://docs.pytorch.org/tutorials/recipes/torch_compile_caching_configuration_tutorial.html"
)
_OPEN = Cost(
    of="open",
    low=1.0,
    high=215.0,
    source="https://github.com/stas00/ml-engineering/tree/master/storage"
    " (files that `import torch` opens: 0.02 s on NVMe, 4.3 s on Lustre)",
)
_TEMPORARY = PurePosixPath("/tmp")
_DOWNLOADS = "hugging face"
"""Its files are few and large, and a shared folder spares each node the download."""


def _caches_on_network(facts: CheckFacts) -> Judgement:
    caches = facts.node.caches
    if caches is None or not any(one.kind for one in caches):
        return not_checked("file_system_not_told")
    remote = [one for one in caches if one.is_network]
    compiled = [one for one in remote if one.library != _DOWNLOADS]
    if not compiled:
        seen: dict[str, Value] = {"num_caches": len(caches)}
        if remote:
            seen["downloads"] = remote[0].folder
        return clean(seen)
    run = facts.run.measurement if facts.run is not None else None
    is_several = spans_machines(facts) or (run is not None and run.num_ranks > 1)
    return fires(
        Severity.WARNING if is_several else Severity.INFO,
        Certainty.LIKELY if is_several else Certainty.POSSIBLE,
        seen={
            "caches": "; ".join(f"{one.library} in {one.folder}" for one in compiled),
            "kind": compiled[0].kind or "",
        },
        cost=_OPEN,
        commands=tuple(_move(one) for one in compiled if _may_move(facts, one)),
        advice=(
            "A folder of the node itself is empty at first on each node, and where the scheduler "
            "clears it, in each job.",
        )
        if _has_local(facts)
        else ("Name a folder on a disk of the node itself; none was seen here.",),
    )


def _has_local(facts: CheckFacts) -> bool:
    """Return whether the temporary folder is known to lie on the node itself."""
    mount = find_mount(_TEMPORARY, facts.inventory.mounts)
    return mount is not None and not mount.is_network


def _may_move(facts: CheckFacts, cache: CacheFolder) -> bool:
    """Return whether the folder is the library's own choice: a variable was set for a reason."""
    return _has_local(facts) and cache.variable not in facts.environment


def _move(cache: CacheFolder) -> Command:
    name = cache.library.replace("torch.compile", "torchinductor")
    return in_shell(f"export {cache.variable}=/tmp/{name}-$USER")


CHECKS = (
    CheckRow(
        code="caches_on_network",
        subject="disk",
        title="compiled code is kept on a network file system",
        seen=("{caches}", "{kind}", "{num_caches} caches", "downloads in {downloads}"),
        why="All ranks read and lock thousands of small files there at the same moment; a lock "
        "that is lost on the way makes a rank compile again, or wait.",
        source=_CACHES,
        judge=_caches_on_network,
    ),
)
