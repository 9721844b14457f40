"""Shows the list of levers, and explains one of them: for people, for programs and for the docs.

In: one LeverCard per lever, made of what it declares. Out: lines on a console, or Markdown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from steptime.core.printable import printable
from steptime.report.text.page import LABEL_WIDTH, columns, joined, page_of, shortened
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
        f"{name} = {' | '.join(printable(str(value)) for value in values)}"
        for name, values in card.settings.items()
    )


def lever_markdown(card: LeverCard) -> str:
    """Return the section of one lever in the reference."""
    rows = [f"| {label} | {_plain(content)} |" for label, content in rows_of(card)]
    language = "bash" if card.moment == "ENVIRONMENT" else "python"
    lines = [f"## `{card.name}`", "", card.title, "", "| | |", "|---|---|", *rows, ""]
    lines += ["To make it permanent:", "", f"```{language}", *card.edit.splitlines(), "```", ""]
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Return text for a table cell: bars are escaped, and the glue of `joined` is removed."""
    return text.replace("\ue000", " ").replace("|", "\\|")
