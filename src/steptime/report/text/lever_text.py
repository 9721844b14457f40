"""Shows the list of levers, and explains one of them: for people, for programs and for the docs.

In: one LeverCard per lever, made of what it declares. Out: lines on a console, or Markdown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from steptime.core.printable import printable
from steptime.report.blocks.phrasing import joined, shortened
from steptime.report.text.page import LABEL_WIDTH, columns, page_of
from steptime.report.words import run_words

PRESERVES: Mapping[str, str] = {
    "EXACT": "the same bits; whole runs are compared bit for bit",
    "NUMERIC": "the same mathematics, rounded in another way; one step is compared with float64, "
    "and whole runs with what a change of the last bit does",
    "STATISTICAL": "the same distribution, other draws; the samples are counted, and whole runs "
    "compared",
    "NOTHING": "it changes the training, and is not tried unless it is allowed",
}

MOMENTS: Mapping[str, str] = {
    "ENVIRONMENT": "in the environment of the command, before it starts",
    "STARTUP": "at start-up, once torch is there",
    "LIVE": "live: between two steps, and back",
}

_MIN_TITLE = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRow:
    """What a lever gave one training, as somebody measured it.

    Attributes:
        training: what was trained, and on what.
        speedup: time without the lever / time with it, or null where only a range is known.
        low: the lower end of its range or interval, if one is known.
        high: the upper end.
        remark: what else one must know about it.
        source: an address, or a file of Steptime's repository where the figure is ours.
    """

    training: str
    speedup: float | None
    low: float | None
    high: float | None
    remark: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverCard:
    """What a lever declares, as machine words and sentences.

    Attributes:
        name: the name of the lever.
        title: what it does.
        preserves: `EXACT`, `NUMERIC`, `STATISTICAL` or `NOTHING`: the weakest class that it
            has anywhere.
        moment: `ENVIRONMENT`, `STARTUP` or `LIVE`: when it acts.
        relieves: the kinds of bottleneck that it helps against.
        phases: the phases that it makes shorter.
        when: where it applies.
        settings: each setting with the values that are tried; empty for a switch.
        costs: what it costs.
        source: where the idea comes from.
        edit: the lines that make it permanent, with its first settings.
        evidence: what it gave in trainings, published and measured by us.
    """

    name: str
    title: str
    preserves: str
    moment: str
    relieves: tuple[str, ...]
    phases: tuple[str, ...]
    when: str
    settings: Mapping[str, tuple[str | int | float | bool, ...]]
    costs: str
    source: str
    edit: str
    evidence: tuple[EvidenceRow, ...] = ()


def levers_table(cards: Sequence[LeverCard], *, console: Console) -> None:
    """Print all levers, one per line."""
    page = page_of(console)
    rows = [["lever", "preserves", "acts"]]
    rows += [[printable(c.name), c.preserves.lower(), c.moment.lower()] for c in cards]
    lines = columns(rows, left=3)
    width = max(_MIN_TITLE, console.width - lines[0].cell_len - 2)
    lines[0].append("  what it does")
    for line, card in zip(lines[1:], cards, strict=True):
        title = shortened(card.title, width) if console.is_terminal else printable(card.title)
        line.append(f"  {title}")
    page.write([*lines, Text(), Text(f"  steptime levers {cards[0].name}", style="bold")])


def render_lever(card: LeverCard, *, console: Console) -> None:
    """Print what one lever declares, and how to try it alone."""
    page = page_of(console)
    lines = [Text(printable(card.name), style="bold"), Text()]
    lines += page.block("does", printable(card.title))
    for label, content in rows_of(card):
        wrapped = page.block(label, content)
        if label == "source":  # nobody can open an address that is folded
            wrapped = [Text.assemble((f"{label:<{LABEL_WIDTH}}", "dim"), content)]
        lines += wrapped
    lines += [Text(), Text("to make it permanent", style="dim")]
    lines += [Text(f"  {printable(line)}") for line in card.edit.splitlines()]
    lines += _evidence_lines(card)
    lines += [
        Text(),
        Text(f"  steptime tune --levers {card.name} -- python train.py", style="bold"),
    ]
    page.write(lines)


def rows_of(card: LeverCard) -> list[tuple[str, str]]:
    """Return the label and text of each thing that a lever declares."""
    return [
        ("applies", printable(card.when)),
        ("relieves", joined(run_words.describe_title(kind) for kind in card.relieves)),
        ("shortens", joined(run_words.describe_phase(name) for name in card.phases)),
        ("preserves", f"{card.preserves}: {PRESERVES[card.preserves]}"),
        ("acts", MOMENTS[card.moment]),
        ("settings", describe_settings(card)),
        ("costs", printable(card.costs)),
        ("source", printable(card.source)),
    ]


def describe_settings(card: LeverCard) -> str:
    """List each setting with the values that are tried where they apply."""
    if not card.settings:
        return "none: it is on or off"
    return joined(
        f"{name} = {' | '.join(_shown(str(value)) for value in values)}"
        for name, values in card.settings.items()
    )


def _shown(value: str) -> str:
    return "a text of several lines" if "\n" in value else printable(value)


def _evidence_lines(card: LeverCard) -> list[Text]:
    """Return what the lever gave elsewhere, best first, then the numbered sources."""
    if not card.evidence:
        return [Text(), Text("untested: there are no figures of it yet", style="dim")]
    rows = sorted(card.evidence, key=_middle, reverse=True)
    sources = list(dict.fromkeys(one.source for one in rows))
    lines = columns([[describe_gain(one)] for one in rows], left=1)
    for line, one in zip(lines, rows, strict=True):
        told = f"{printable(one.training)}. {printable(one.remark)}".rstrip()
        line.append(f"  {told} ").append(f"[{sources.index(one.source) + 1}]", style="dim")
    listed = [f"  [{i}] {printable(source)}" for i, source in enumerate(sources, start=1)]
    return [
        Text(),
        Text("what it gave: the speedup, with its range", style="dim"),
        *(Text("  ") + line for line in lines),
        *(Text(line, style="dim") for line in listed),
    ]


def describe_gain(one: EvidenceRow) -> str:
    """Return a speedup with its range: `1.12x (1.10-1.15)`, or `1.01-1.10x`."""
    span = None if one.low is None or one.high is None else f"{one.low:.2f}-{one.high:.2f}"
    if one.speedup is None:
        return "not in figures" if span is None else f"{span}x"
    return f"{one.speedup:.2f}x" + (f" ({span})" if span else "")


def lever_markdown(card: LeverCard) -> str:
    """Return the section of one lever in the reference."""
    rows = [f"| {label} | {_plain(content)} |" for label, content in rows_of(card)]
    language = "bash" if card.moment == "ENVIRONMENT" else "python"
    lines = [f"## `{card.name}`", "", card.title, "", "| | |", "|---|---|", *rows, ""]
    lines += ["To make it permanent:", "", f"```{language}", *card.edit.splitlines(), "```", ""]
    return "\n".join([*lines, *_evidence_table(card)])


def _evidence_table(card: LeverCard) -> list[str]:
    """Return what the lever gave as a table, best first; without figures, a sentence."""
    if not card.evidence:
        return ["Untested: there are no figures of it yet.", ""]
    rows = [
        f"| {_plain(one.training)} | {describe_gain(one)} | {_plain(one.remark)} | {_link(one)} |"
        for one in sorted(card.evidence, key=_middle, reverse=True)
    ]
    return [
        "What it gave:",
        "",
        "| training | speedup | | source |",
        "|---|---|---|---|",
        *rows,
        "",
    ]


def _middle(one: EvidenceRow) -> float:
    """Return the speedup, or the middle of its range; nothing known is last."""
    if one.speedup is not None:
        return one.speedup
    return 0.0 if one.low is None or one.high is None else (one.low + one.high) / 2


def _link(one: EvidenceRow) -> str:
    """Return the source as a link: published ones by their site, ours from docs/reference/."""
    if one.source.startswith("https://"):
        site, *place = one.source.removeprefix("https://").split("/")
        shown = "/".join(place[:2]) if site == "github.com" else site
        return f"[{shown}]({one.source})"
    inside = one.source.removeprefix("docs/")
    return f"[ours]({'../' if inside != one.source else '../../'}{inside})"


def _plain(text: str) -> str:
    """Return text for a table cell: bars are escaped, and the glue of `joined` is removed."""
    return text.replace("\ue000", " ").replace("|", "\\|")
