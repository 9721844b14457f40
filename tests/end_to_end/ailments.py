"""Which specimen has which ailment, and when a diagnosis of it is right.

A diagnosis is right if

* it has a finding of the ailment's kind and cause, at `warning` or above;
* that kind is the primary kind; where the ailment is no bottleneck (kind null), the primary kind
  names no bottleneck either: `BALANCED`, `COMPUTE_BOUND`, or `INCONCLUSIVE` for noise;
* no other finding is at `warning` or above, with two exceptions that speak of the machine and not
  of the script: `CONTENDED`, which is then also the primary kind of a script of which nothing else
  can be said, and `INCONCLUSIVE` for noise, where it was allowed above.

Its line is right if the line marked `# ailment` in the specimen is the one in `where`, or among
those in `where` if that names several.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SPECIMENS = Path(__file__).resolve().parent.parent / "specimens"
NO_BOTTLENECK = {"BALANCED", "COMPUTE_BOUND"}
CONTENDED = "CONTENDED/neighbor"
NOISE = "INCONCLUSIVE/noise"

Finding = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Ailment:
    """A specimen, how it is started, and what its diagnosis must say; `kind` may be null."""

    specimen: str
    kind: str | None
    cause: str | None
    args: tuple[str, ...] = ()
    nproc: int | None = None
    exit_code: int = 0
    needs_gpu: bool = False

    @property
    def path(self) -> Path:
        return SPECIMENS / f"{self.specimen}.py"

    @property
    def line(self) -> int | None:
        """The line marked in the specimen, None if there is none."""
        lines = self.path.read_text().splitlines()
        return next((i for i, line in enumerate(lines, 1) if line.endswith("# ailment")), None)


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What became of one run of a specimen; `line` is None where no line is marked."""

    kind: str
    found: Finding | None
    beside: tuple[str, ...]
    is_right: bool
    is_line_right: bool | None


AILMENTS = {
    "slow fetch": Ailment(specimen="slow_fetch", kind="INPUT_BOUND", cause="fetch"),
    "slow decode in workers": Ailment(
        specimen="slow_fetch",
        args=("--num-workers", "2"),
        kind="INPUT_BOUND",
        cause="worker_fetch",
    ),
    "costly collate": Ailment(specimen="slow_collate", kind="INPUT_BOUND", cause="collate"),
    "worker start-up": Ailment(
        specimen="worker_startup", kind="INPUT_BOUND", cause="worker_startup"
    ),
    "augmentation": Ailment(specimen="augmentation", kind="INPUT_BOUND", cause="preprocessing"),
    "tiny operators": Ailment(specimen="tiny_operators", kind="HOST_BOUND", cause="tiny_operators"),
    "loop over elements": Ailment(
        specimen="element_loop", kind="HOST_BOUND", cause="random_per_element"
    ),
    "garbage collection": Ailment(specimen="gc_pauses", kind="HOST_BOUND", cause="gc"),
    "recompiling": Ailment(specimen="recompile", kind="HOST_BOUND", cause="recompile"),
    "graph breaks": Ailment(specimen="graph_breaks", kind=None, cause="graph_breaks"),
    "slow rank": Ailment(
        specimen="ddp", args=("--slow-rank", "1"), nproc=2, kind="STRAGGLER", cause="forward"
    ),
    "busy neighbor": Ailment(specimen="busy_neighbor", kind="CONTENDED", cause="neighbor"),
    "checkpointing": Ailment(specimen="checkpointing", kind=None, cause="checkpoint"),
    "evaluation": Ailment(specimen="evaluation", kind=None, cause="evaluation"),
    "memory leak": Ailment(specimen="leak", kind=None, cause="leak"),
    "out of memory": Ailment(
        specimen="out_of_memory", kind="MEMORY_CAPACITY_BOUND", cause="out_of_memory", exit_code=1
    ),
    "undivided loss": Ailment(specimen="accumulation_loss", kind=None, cause="accumulation_loss"),
    "anomaly mode": Ailment(specimen="anomaly_mode", kind=None, cause="anomaly_mode"),
    "healthy": Ailment(specimen="healthy", kind="BALANCED", cause=None),
    "GPU sync": Ailment(specimen="gpu_sync", kind="HOST_BOUND", cause="sync", needs_gpu=True),
    "GPU copies": Ailment(
        specimen="gpu_copies", kind="INPUT_BOUND", cause="copies", needs_gpu=True
    ),
}


def judge(ailment: Ailment, diagnosis: Mapping[str, Any]) -> Judgement:
    """Whether a diagnosis, as in the JSON document, is that of the ailment; see above."""
    kind, findings = diagnosis["kind"], diagnosis["findings"]
    is_healthy = ailment.kind == "BALANCED"
    serious = [f for f in findings if f["severity"] != "info"]
    wanted = (ailment.kind, ailment.cause)
    found = next((f for f in serious if (f["kind"], f["cause"]) == wanted), None)
    beside = tuple(_name(f) for f in serious if f is not found)
    allowed, kinds = {CONTENDED}, {ailment.kind}
    if ailment.kind is None or is_healthy:
        kinds = {"BALANCED"} if is_healthy else {*NO_BOTTLENECK, "INCONCLUSIVE"}
        kinds |= {"CONTENDED"} if CONTENDED in beside else set()
        allowed |= set() if is_healthy else {NOISE}
    is_right = (is_healthy or found is not None) and kind in kinds and set(beside) <= allowed
    return Judgement(
        kind=kind,
        found=found,
        beside=beside,
        is_right=is_right,
        is_line_right=None if ailment.line is None else _names_line(found, ailment),
    )


def _name(finding: Finding) -> str:
    return f"{finding['kind']}/{finding['cause']}"


def _names_line(found: Finding | None, ailment: Ailment) -> bool:
    """`where` is `file:line`, or `file:first-last` for the lines between two calls."""
    file, _, lines = ((found or {}).get("where") or "").rpartition(":")
    if Path(file).name != ailment.path.name or ailment.line is None:
        return False
    first, _, last = lines.partition("-")
    return int(first) <= ailment.line <= int(last or first)
