"""A check of the machine: what was seen of one thing that can hold a training back.

Frozen values that survive JSON. Words for people are made in `report`; a check knows machine words,
numbers, sources, and the exact commands that mend it, each with who may run it and what it
disrupts. They are printed, never run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from steptime.diagnose.values.finding import Severity


class CheckStatus(str, Enum):
    """What came of a check."""

    FIRES = "fires"
    CLEAN = "clean"
    NOT_CHECKED = "not_checked"
    NOT_APPLICABLE = "not_applicable"


class Certainty(str, Enum):
    """How sure a check that fires is that the training suffers from it."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """How much it can cost.

    Attributes:
        of: what takes longer (`step`, `matmul`, `attention`, `copies`, `communication`, `peers`,
            `host`, `open`, `start`), or `failure`: a training ends by it, or never begins.
        low, high: time with it over time without it; of `start` seconds more (`unit`). None of a
            failure.
        unit: `x`: time with it over time without it; `s`: seconds more.
        source: source of the figures.
    """

    of: str
    low: float | None = None
    high: float | None = None
    unit: str = "x"
    source: str | None = None


class Runner(str, Enum):
    """Who may run a command.

    USER: whoever trains: it needs no other rights, and changes nothing that is not theirs.
    ROOT: root, because only root may read it; it changes nothing.
    ADMINISTRATOR: whoever answers for the machine, because it changes it for others too.
    """

    USER = "user"
    ROOT = "root"
    ADMINISTRATOR = "administrator"


class Disruption(str, Enum):
    """What a command disrupts, the least first.

    NOTHING: it reads. SHELL: this shell and what it starts. LOAD: it trains, which takes cores and
    GPUs. PACKAGES: whatever uses that Python. MACHINE: a setting of the machine, for all its
    users. LOGINS: logins of all users. TRAININGS: trainings that run on the machine. NODE:
    everything on it; it restarts.
    """

    NOTHING = "nothing"
    SHELL = "shell"
    LOAD = "load"
    PACKAGES = "packages"
    MACHINE = "machine"
    LOGINS = "logins"
    TRAININGS = "trainings"
    NODE = "node"


class CommandPlace(str, Enum):
    """Where a command is to be run: in this shell, or on the host of this container."""

    HERE = "here"
    HOST = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of a remedy.

    Attributes:
        line: the command, for a shell.
        who: who may run it.
        disrupts: what it disrupts.
        place: where to run it.
    """

    line: str
    who: Runner
    disrupts: Disruption
    place: CommandPlace = CommandPlace.HERE


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCheck:
    """What came of one check.

    Attributes:
        code: its machine word.
        subject: `software`, `precision`, `threads`, `memory`, `limits`, `container`, `network`,
            `devices`, `environment`, `disk` or `security`.
        status: what came of it.
        source: source of the rule.
        seen: what it rests on, by name; quantities end in their unit.
        reason: why it was not checked, or does not apply, a machine word.
        severity, certainty, cost: only where it fires; no cost is one that is not known.
        commands: that mend it; printed, never run.
        advice: what to do where no command is certain to be right here, in sentences.
    """

    code: str
    subject: str
    status: CheckStatus
    source: str
    seen: Mapping[str, str | int | float] = field(default_factory=dict)
    reason: str | None = None
    severity: Severity | None = None
    certainty: Certainty | None = None
    cost: Cost | None = None
    commands: tuple[Command, ...] = ()
    advice: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclChoice:
    """What NCCL said it chose, from a log of NCCL_DEBUG=INFO.

    Attributes:
        path: path of the log.
        version: version of NCCL.
        network: `IB`, `Socket`, or the name of a plugin.
        interface: of the first connections.
        transports: number of channels by transport: `P2P/CUMEM`, `SHM`, `NET/IB/GDRDMA`.
        num_nodes, num_ranks: as it says.
        has_rings, has_trees: it connected them.
        algorithms: of collectives with payloads, `RING`, `TREE`, `NVLS`, as far as it told.
    """

    path: str
    version: str | None = None
    network: str | None = None
    interface: str | None = None
    transports: Mapping[str, int] = field(default_factory=dict)
    num_nodes: int | None = None
    num_ranks: int | None = None
    has_rings: bool = False
    has_trees: bool = False
    algorithms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSite:
    """Whose machine this is, as far as facts say: it decides which commands are right here.

    Attributes:
        scheduler: that hands out this machine: `slurm`, `pbs`, `lsf`, `sge`, `flux` or
            `kubernetes`; None where nothing of one was seen.
        in_job: this shell is in a job of it.
        serves_jobs: a daemon of the scheduler runs here, so this is no login node.
        is_root: this shell is root's.
        num_others: other people with processes here; None where it is not known.
        hides_others: processes of other people are hidden, as on machines of many.
        num_accounts: accounts of people that may log in; None where a directory holds them.
    """

    scheduler: str | None = None
    in_job: bool = False
    serves_jobs: bool = False
    is_root: bool = False
    num_others: int | None = None
    hides_others: bool = False
    num_accounts: int | None = None

    @property
    def is_login_node(self) -> bool:
        """Return whether jobs are handed in here, and not run."""
        return self.needs_job and not self.serves_jobs

    @property
    def needs_job(self) -> bool:
        """Return whether a training here belongs into a job that this shell is not in."""
        # A node of Kubernetes may be somebody's own machine too.
        return self.scheduler not in (None, "kubernetes") and not self.in_job

    @property
    def is_shared(self) -> bool:
        """Return whether other people are known, or must be expected, to work here."""
        return self.scheduler is not None or self.hides_others or (self.num_others or 0) > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What the checks rest on.

    Attributes:
        python: that was asked; None where none was found.
        torch: its version; None where it could not be asked: `missing` and `detail` say why.
        missing: why torch could not be asked, a machine word.
        detail: the words of what failed.
        run_id: of the run that was examined; None without one.
        nccl: what a log of NCCL says.
        site: whose machine this is.
    """

    python: str | None = None
    torch: str | None = None
    missing: str | None = None
    detail: str | None = None
    run_id: str | None = None
    nccl: NcclChoice | None = None
    site: MachineSite = field(default_factory=MachineSite)


_SEVERITIES = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)


def most_costly_first(checks: tuple[MachineCheck, ...]) -> tuple[MachineCheck, ...]:
    """Those that fire: by severity, what is only possible later, then by what it costs at most."""
    fired = [check for check in checks if check.status is CheckStatus.FIRES]
    return tuple(sorted(fired, key=_rank))


def _rank(check: MachineCheck) -> tuple[int, bool, int, float]:
    severity = _SEVERITIES.index(check.severity or Severity.INFO)
    is_unsure = check.certainty is Certainty.POSSIBLE
    if check.cost is None:
        return severity, is_unsure, 3, 0.0
    if check.cost.of == "failure":
        return severity, is_unsure, 0, 0.0
    # A part of a step may be a small one, whatever its own ratio.
    return severity, is_unsure, 1 if check.cost.of == "step" else 2, -(check.cost.high or 1.0)
