"""Says what the checks of a machine found, the most costly first.

In: `MachineCheck` values. Out: blocks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.text import Text

from steptime.core.printable import printable
from steptime.diagnose.values.finding import Severity
from steptime.machine.checks.remedy import SCHEDULERS
from steptime.machine.checks.run_checks import ROWS
from steptime.machine.values.check_values import (
    Basis,
    CheckStatus,
    Command,
    Cost,
    MachineCheck,
    MachineSite,
    NcclChoice,
    Runner,
    most_costly_first,
)
from steptime.report.blocks.phrasing import joined, labeled
from steptime.report.blocks.values import Blank, Block, CommandLine, Labeled
from steptime.report.words.machine.check_reasons import (
    CERTAINTY,
    COST_OF,
    DISRUPTIONS,
    PLACES,
    REASONS,
    RUNNERS,
)
from steptime.report.words.study.fact_words import describe_facts

_STYLES = {Severity.CRITICAL: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold"}
_TIMES = 1.5  # people think in percent below this ratio
_MAX_CHOICES = 4  # of collectives and payloads; the document has all of them
_NAME = re.compile(r"\{(\w+)\}")


def check_blocks(checks: tuple[MachineCheck, ...], basis: Basis, *, is_all: bool) -> list[Block]:
    """Return what fires in full and remarks in short; with `is_all`, all checks are listed."""
    fired = most_costly_first(checks)
    shown = [one for one in fired if is_all or one.severity is not Severity.INFO]
    remarks = [("remark", _remark(one)) for one in fired if one not in shown]
    following = "steptime run -- python train.py" if is_all else "steptime doctor --all"
    return [
        *(block for check in shown for block in (*_full(check), Blank())),
        *labeled(*remarks),
        *([Blank()] if remarks else []),
        *labeled(
            ("nccl", None if basis.nccl is None else joined(_nccl(basis.nccl))),
            ("asked", joined(_asked(basis))),
            ("checks", _counts(checks)),
        ),
        *([Blank(), *_others(checks)] if is_all else []),
        Blank(),
        CommandLine(following, "next"),
    ]


def _full(check: MachineCheck) -> list[Block]:
    row = ROWS[check.code]
    severity = check.severity or Severity.INFO
    head = Text.assemble((row.title, _STYLES[severity]), (f"  {check.code}", "dim"))
    sure = CERTAINTY[check.certainty.value] if check.certainty is not None else ""
    blocks = labeled(
        (severity.value, head),
        ("  seen", seen_text(check)),
        ("  why", row.why),
        ("  cost", cost_text(check.cost)),
    )
    for command in check.commands:
        label = "  mend" if command == check.commands[0] else ""
        blocks += [CommandLine(command.line, label), Labeled("", terms_of(command), style="dim")]
    for sentence in check.advice:
        blocks += labeled(("  advice" if sentence == check.advice[0] else "", sentence))
    return [*blocks, *labeled(("  sure", f"{sure} · rule: {check.source}"))]


def terms_of(command: Command) -> str:
    """Say who may run a command, where, and what it disrupts."""
    words = (
        RUNNERS[command.who.value],
        PLACES[command.place.value],
        DISRUPTIONS[command.disrupts.value],
    )
    return " · ".join(word for word in words if word)


def _asked(basis: Basis) -> list[str]:
    """Name the Python that was asked, and the run that was examined."""
    parts = []
    if basis.torch is not None:
        parts.append(f"torch {printable(basis.torch)} under {printable(basis.python or '?')}")
    else:
        detail = f" ({printable(basis.detail)})" if basis.detail else ""
        parts.append(describe_reason(basis.missing or "no_torch") + detail)
    parts.append("no run" if basis.run_id is None else f"run {basis.run_id}")
    return parts + _site(basis.site)


def _site(site: MachineSite) -> list[str]:
    """Say whose machine this is, where that decides which commands are shown."""
    parts = []
    if site.scheduler is not None:
        where = "in a job" if site.in_job else "a login node" if site.is_login_node else "a node"
        parts.append(f"{where} of {SCHEDULERS.get(site.scheduler, site.scheduler)}")
    if site.num_others:
        parts.append(f"{site.num_others} other user" + ("s" if site.num_others > 1 else ""))
    return parts


def _nccl(choice: NcclChoice) -> list[str]:
    """Say what NCCL chose, according to its log."""
    parts = [printable(choice.path)]
    if choice.version is not None:
        parts.append(f"version {choice.version}")
    for num, thing in ((choice.num_ranks, "ranks"), (choice.num_nodes, "machines")):
        if num is not None:
            parts.append(f"{num} {thing}")
    if choice.network is not None:
        parts.append(f"network {printable(choice.network)}")
    if choice.interface is not None:
        parts.append(f"first met over {printable(choice.interface)}")
    parts += [f"{num} × {printable(way)}" for way, num in choice.transports.items()]
    shapes = (("rings", choice.has_rings), ("trees", choice.has_trees))
    parts += [word for word, has in shapes if has]
    return parts + [printable(words) for words in choice.algorithms[:_MAX_CHOICES]]


def _remark(check: MachineCheck) -> str:
    text = f"{ROWS[check.code].title} ({seen_text(check)})"
    if check.commands:
        first = check.commands[0]
        who = "" if first.who is Runner.USER else f" ({RUNNERS[first.who.value]})"
        return f"{text}: {printable(first.line)}{who}"
    return f"{text}: {printable(check.advice[0])}" if check.advice else text


def _counts(checks: Sequence[MachineCheck]) -> str:
    def num(status: CheckStatus) -> int:
        return sum(check.status is status for check in checks)

    parts = [
        f"{num(CheckStatus.FIRES)} of {len(checks)} fire",
        f"{num(CheckStatus.CLEAN)} are clean",
        f"{num(CheckStatus.NOT_CHECKED)} could not be checked",
        f"{num(CheckStatus.NOT_APPLICABLE)} do not apply here",
    ]
    return joined(parts)


def _others(checks: Sequence[MachineCheck]) -> list[Block]:
    told = []
    for check in checks:
        if check.status is CheckStatus.CLEAN:
            seen = seen_text(check)
            told.append(("clean", check.code + (f": {seen}" if seen else "")))
    for status, label in (
        (CheckStatus.NOT_CHECKED, "unchecked"),
        (CheckStatus.NOT_APPLICABLE, "not here"),
    ):
        by_reason: dict[str, list[str]] = {}
        for check in checks:
            if check.status is status:
                by_reason.setdefault(check.reason or "not_told", []).append(check.code)
        told += [(label, f"{describe_reason(r)}: {', '.join(c)}") for r, c in by_reason.items()]
    return labeled(*told)


def describe_reason(word: str) -> str:
    """Say why a check was not made, or why it does not apply."""
    return REASONS.get(word, word.replace("_", " "))


def seen_text(check: MachineCheck) -> str:
    """Say what was seen, as far as there are words for it."""
    told = {name: printable(text) for name, text in describe_facts(check.seen).items()}
    parts = []
    for part in ROWS[check.code].seen:
        names = _NAME.findall(part)
        if all(told.get(name) for name in names) and (names or not _differs(check)):
            parts.append(part.format_map(told))
    return "; ".join(parts)


def _differs(check: MachineCheck) -> bool:
    """Return whether the check does not fire: then parts without a quantity are left out."""
    return check.status is not CheckStatus.FIRES


def cost_text(cost: Cost | None) -> str:
    """Say how much it can cost, with the source of the figure."""
    if cost is None:
        return "not known"
    if cost.of == "failure":
        return "a training ends by it, or never begins"
    if cost.high is None:
        return "not known"
    what = COST_OF.get(cost.of, cost.of)
    if cost.unit == "s":
        text = f"{_number(cost.low)} to {_number(cost.high)} s more at {what}"
    elif cost.high < _TIMES:
        least = "up to" if (cost.low or 1.0) <= 1.0 else f"{_percent(cost.low)} to"
        text = f"{what}: {least} {_percent(cost.high)} % longer"
    elif cost.low is None or cost.low <= 1.0:
        text = f"{what}: up to {_number(cost.high)} times as long"
    else:
        text = f"{what}: {_number(cost.low)} to {_number(cost.high)} times as long"
    return f"{text} · {cost.source}" if cost.source else text


def _percent(ratio: float | None) -> str:
    return f"{100 * (ratio or 1.0) - 100:.0f}"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.3g}"
