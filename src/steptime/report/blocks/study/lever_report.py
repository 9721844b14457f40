"""Lists the levers, and explains one of them: for people, for programs and for the docs.

In: one LeverCard per lever, made of what it declares. Out: blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from steptime.levers.base import Lever, LeverEvidence
from steptime.levers.examples import WORLDS
from steptime.levers.lever_evidence import evidence_of
from steptime.report.blocks.phrasing import joined, labeled
from steptime.report.blocks.values import (
    Blank,
    Block,
    Code,
    CommandLine,
    Heading,
    Items,
    Labeled,
    TableBlock,
)
from steptime.report.words.run import run_words


def card_of(lever: Lever) -> LeverCard:
    """Return what a lever declares, with the settings that it has in some world."""
    tried = [s for facts in WORLDS if lever.applies(facts) is None for s in lever.space(facts)]
    names = dict.fromkeys(name for settings in tried for name in settings)
    return LeverCard(
        name=lever.name,
        title=lever.title,
        preserves=lever.preserves.value,
        moment=lever.moment.value,
        relieves=lever.relieves,
        phases=lever.phases,
        when=lever.when,
        settings={n: tuple(dict.fromkeys(s[n] for s in tried if n in s)) for n in names},
        costs=lever.costs,
        source=lever.source,
        edit=lever.edit(tried[0] if tried else {}),
        evidence=evidence_of(lever),
    )


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
    evidence: tuple[LeverEvidence, ...] = ()


def levers_blocks(cards: Sequence[LeverCard]) -> list[Block]:
    """Return all levers, one per line."""
    rows = [(c.name, c.preserves.lower(), c.moment.lower(), c.title) for c in cards]
    heading = ("lever", "preserves", "acts", "what it does")
    return [
        TableBlock(heading, rows, left=4, name="Levers", cut_last=True),
        Blank(),
        CommandLine(f"steptime levers {cards[0].name}", "next"),
    ]


def lever_blocks(card: LeverCard) -> list[Block]:
    """Return what one lever declares, and how to try it alone."""
    return [
        *labeled(("lever", Text(card.name, style="bold")), ("does", card.title)),
        *declared(card),
        Blank(),
        CommandLine(f"steptime tune --levers {card.name} -- python train.py", "next"),
    ]


def declared(card: LeverCard) -> list[Block]:
    """Return what a lever declares, the edit that makes it permanent, and what it gave."""
    language = "bash" if card.moment == "ENVIRONMENT" else "python"
    return [
        *labeled(
            ("applies", card.when),
            ("relieves", joined(run_words.describe_title(kind) for kind in card.relieves)),
            ("shortens", joined(run_words.describe_phase(name) for name in card.phases)),
            ("preserves", f"{card.preserves}: {PRESERVES[card.preserves]}"),
            ("acts", MOMENTS[card.moment]),
            ("settings", describe_settings(card)),
            ("costs", card.costs),
            ("source", card.source),
        ),
        Heading("To make it permanent"),
        Code(card.edit, language=language, is_whole=True),
        *_evidence(card),
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
    return "a text of several lines" if "\n" in value else value


def _evidence(card: LeverCard) -> list[Block]:
    """Return what the lever gave elsewhere, best first, then the numbered sources."""
    if not card.evidence:
        return [Blank(), Labeled("", "untested: there are no figures of it yet", style="dim")]
    rows = sorted(card.evidence, key=_middle, reverse=True)
    sources = list(dict.fromkeys(one.source for one in rows))
    cells = [(describe_gain(one), str(1 + sources.index(one.source)), one.training) for one in rows]
    heading, notes = ("speedup", "source", "training"), [one.remark for one in rows]
    return [
        Heading("What it gave: the speedup, with its range"),
        TableBlock(heading, cells, left=3, name="What it gave", notes=notes),
        Blank(),
        Items(sources, is_numbered=True),
    ]


def describe_gain(one: LeverEvidence) -> str:
    """Return a speedup with its range: `1.12x (1.10-1.15)`, or `1.01-1.10x`."""
    span = None if one.low is None or one.high is None else f"{one.low:.2f}-{one.high:.2f}"
    if one.speedup is None:
        return "not in figures" if span is None else f"{span}x"
    return f"{one.speedup:.2f}x" + (f" ({span})" if span else "")


def _middle(one: LeverEvidence) -> float:
    """Return the speedup, or the middle of its range; nothing known is last."""
    if one.speedup is not None:
        return one.speedup
    return 0.0 if one.low is None or one.high is None else (one.low + one.high) / 2
