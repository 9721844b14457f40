"""What a run answered while it trained: the value that `attach` returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from steptime.app.stored.plain_text import Shown
from steptime.core.store import Run
from steptime.measure.values.answer import RankAnswer
from steptime.measure.values.desync import Desync
from steptime.measure.values.model.layer_health import LayerHealth
from steptime.measure.values.stall import StalledRank

if TYPE_CHECKING:
    from rich.console import Console

    from steptime.report.document.listings import AttachDocument


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RunAnswer(Shown):
    """What a run answered. `print(answer)` shows it as the terminal does.

    Attributes:
        run: its id and its folder; None for a process that `steptime run` did not start.
        what: what was asked: `memory`, `count`, `profile`, `health` or `stacks`.
        asked_unix_s: when it was asked.
        ranks: what each rank answered; empty for `stacks`.
        stacks: where the ranks are: all of them for `stacks`, else those that did not answer.
        culprits: the ranks that the others wait for, where that is known.
        layers: what the probe of the layers saw in the rank with most updates, for `health`.
        desync: how the ranks lost each other, where the stacks were taken and something shows it.
        is_past: whether the run has ended, and the stacks are those of its last stall.
    """

    run: Run | None
    what: str
    asked_unix_s: float
    ranks: tuple[RankAnswer, ...] = ()
    stacks: tuple[StalledRank, ...] = ()
    culprits: tuple[int, ...] = ()
    layers: LayerHealth | None = None
    desync: Desync | None = None
    is_past: bool = False

    @property
    def run_id(self) -> str | None:
        """The id of the run; None for a process that belongs to none."""
        return None if self.run is None else self.run.run_id

    @property
    def is_whole(self) -> bool:
        """Whether every rank answered."""
        return all(one.missing is None for one in self.ranks)

    @property
    def document(self) -> AttachDocument:
        """The answer as `--json` writes it."""
        from steptime.report.document.listings import AttachDocument

        return AttachDocument(
            run_id=self.run_id,
            what=self.what,
            asked_unix_s=round(self.asked_unix_s, 3),
            ranks=self.ranks,
            stacks=self.stacks,
            culprits=self.culprits,
            layers=self.layers,
            desync=self.desync,
            is_past=self.is_past,
        )

    def render(self, console: Console) -> None:
        """Write the answer to a console of rich."""
        from steptime.report.blocks.run.answer_report import answer_report
        from steptime.report.text.paint_text import print_report

        print_report(answer_report(self.document), console=console)

    def __repr__(self) -> str:
        num = sum(one.missing is None for one in self.ranks) or len(self.stacks)
        return f"<RunAnswer {self.run_id}: {self.what}, {num} ranks>"
