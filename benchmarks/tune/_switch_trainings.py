"""The small trainings of `lever_switches.py`, and what is expected of a lever in each of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Step = Callable[[], None]


def make_mlp(torch: Any, width: int, depth: int, batch: int) -> Step:
    """Return a step of a multilayer perceptron with AdamW."""
    torch.manual_seed(0)
    layers = [m for _ in range(depth) for m in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x = torch.randn(batch, width)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def with_games(torch: Any, num_kept: int, num_new: int) -> Step:
    """Keep many small Python objects, some of them renewed in each step."""
    step = make_mlp(torch, 64, 2, 32)

    def play(number: int) -> list[Any]:
        return [{"state": [i, i + 1], "reward": [i % 2]} for i in range(number)]

    memory: deque[Any] = deque(play(num_kept), maxlen=num_kept)

    def steps() -> None:
        memory.extend(play(num_new))
        step()

    return steps


def with_checkpoints(torch: Any, width: int, batch: int) -> Step:
    """Checkpoint each of some blocks."""
    checkpoint = torch.utils.checkpoint.checkpoint
    torch.manual_seed(0)
    nn = torch.nn
    blocks = nn.ModuleList(
        nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        for _ in range(6)
    )
    optimizer = torch.optim.SGD(blocks.parameters(), lr=0.1)
    x = torch.randn(batch, width)

    def step() -> None:
        optimizer.zero_grad()
        y = x
        for block in blocks:
            y = y + checkpoint(block, y, use_reentrant=False)
        y.square().mean().backward()
        optimizer.step()

    return step


def with_one_checkpoint(torch: Any) -> Step:
    """Checkpoint a small head, behind layers that take most of the time."""
    checkpoint = torch.utils.checkpoint.checkpoint
    torch.manual_seed(0)
    nn = torch.nn
    body = nn.Sequential(*(nn.Linear(768, 768) for _ in range(6)))
    head = nn.Sequential(nn.Linear(768, 32), nn.GELU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=1e-4)
    x = torch.randn(256, 768)

    def step() -> None:
        optimizer.zero_grad()
        checkpoint(head, body(x), use_reentrant=False).square().mean().backward()
        optimizer.step()

    return step


@dataclass(frozen=True)
class Case:
    """A training, the lever that is tried on it, and what is expected of that.

    `num_steps` is the length of a block. The name stands once for each lever: the results are found
    by it.
    """

    name: str
    lever: str
    expected: str
    num_steps: int
    make: Callable[[Any], Step]
    settings: dict[str, Any] = field(default_factory=dict)


def with_windows(torch: Any, batch: int, length: int) -> Step:
    """Return a step on windows of a series, which are cut out one by one."""
    torch.manual_seed(0)
    series = torch.randint(65, (1_000_000,))
    model = torch.nn.Embedding(65, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def draw() -> Any:
        at = torch.randint(len(series) - length, (batch,))
        return torch.stack([series[i : i + length] for i in at])

    def step() -> None:
        optimizer.zero_grad()
        model(draw()).mean().backward()
        optimizer.step()

    return step


def edit_of_windows() -> dict[str, str]:
    """Return the settings of `vectorized_loops` for `with_windows`, as its trial finds them."""
    lines = Path(__file__).read_text(encoding="utf-8").split("\n")
    number = next(
        n for n, line in enumerate(lines) if line.startswith("        return torch.stack([")
    )
    after = "        return series.unfold(0, length, 1).movedim(-1, 1)[at]"
    name = Path(__file__).name
    head = f"--- a/{name}\n+++ b/{name}\n@@ -{number + 1} +{number + 1} @@\n"
    return {"diff": f"{head}-{lines[number]}\n+{after}\n"}


CASES = (
    Case(
        *("60,000 kept objects, 5,000 new ones a step", "gc_control", "helps", 60),
        lambda t: with_games(t, 60_000, 5_000),
        {"every_updates": 10},
    ),
    Case(
        *("60,000 kept objects, 5,000 new ones, each update", "gc_control", "helps", 60),
        lambda t: with_games(t, 60_000, 5_000),
        {"every_updates": 1},
    ),
    Case(
        *("60,000 kept objects, 20 new ones a step, each update", "gc_control", "hurts", 60),
        lambda t: with_games(t, 60_000, 20),
        {"every_updates": 1},
    ),
    Case(
        *("six blocks of 256, batch of 512", "no_checkpointing", "helps", 4),
        lambda t: with_checkpoints(t, 256, 512),
    ),
    Case(
        *("six blocks of 32, batch of 8", "no_checkpointing", "helps", 40),
        lambda t: with_checkpoints(t, 32, 8),
    ),
    Case(
        *("64 windows of 32", "vectorized_loops", "helps", 200),
        lambda t: with_windows(t, 64, 32),
        edit_of_windows(),
    ),
    Case(
        *("2 windows of 65,536", "vectorized_loops", "hurts", 50),
        lambda t: with_windows(t, 2, 65_536),
        edit_of_windows(),
    ),
    Case("a small head alone", "no_checkpointing", "nothing", 4, with_one_checkpoint),
)
