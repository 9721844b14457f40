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


def with_anomaly_mode(torch: Any, *shape: int) -> Step:
    """Leave anomaly detection on."""
    torch.autograd.set_detect_anomaly(True)
    return make_mlp(torch, *shape)


def with_profiler(torch: Any, *shape: int, **how: Any) -> Step:
    """Leave a profiler on, for one block at a time: it keeps what it records in memory."""
    step = make_mlp(torch, *shape)

    def steps() -> None:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **how):
            for _ in range(20):
                step()

    return steps


def with_sums(torch: Any, rows: int) -> Step:
    """Add rows into a table with deterministic algorithms on, which also fill new memory."""
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    table = torch.nn.Embedding(rows, 64)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    index = torch.randint(0, rows, (20_000,))

    def step() -> None:
        optimizer.zero_grad()
        found = table(index)
        sums = torch.zeros(500, 64).index_add(0, index % 500, found)
        sums.square().mean().backward()
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


def with_denormals(torch: Any, value: float) -> Step:
    """Multiply by weights of one size, which is denormal or not."""
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(1000, 1000) * value)
    optimizer = torch.optim.SGD([weight], lr=0.0)
    x = torch.randn(1000, 1000)

    def step() -> None:
        optimizer.zero_grad()
        (weight * x).sum().backward()
        optimizer.step()

    return step


def with_decayed_moments(torch: Any, value: float) -> Step:
    """Update weights whose gradients are zero and whose moments in Adam have one size."""
    weight = torch.nn.Parameter(torch.ones(1_000_000))
    weight.grad = torch.zeros_like(weight)
    optimizer = torch.optim.Adam([weight], lr=1e-3)

    def step() -> None:
        for state in optimizer.state.values():
            state["exp_avg"].fill_(value)
            state["exp_avg_sq"].fill_(value)
        optimizer.step()

    return step


def with_shifts(torch: Any) -> Step:
    """Pad images by reflection and shift them at random, in deterministic mode.

    The mode fills the memory of each padded batch before it is written.
    """
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    images = torch.randn(64, 9, 84, 84)
    head = torch.nn.Linear(9, 1)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        padded = torch.nn.functional.pad(images, (4, 4, 4, 4), mode="reflect")
        top, left = torch.randint(9, (2,)).tolist()
        head(padded[:, :, top : top + 84, left : left + 84].mean((2, 3))).mean().backward()
        optimizer.step()

    return step


def with_buffers(torch: Any) -> Step:
    """Make room for the longest row in each step and fill in what there is, in that mode."""
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    rows = torch.randn(64, 128, 64)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        room = torch.empty(64, 1024, 64)
        room[:, :128] = rows
        model(room[:, :128]).square().mean().backward()
        optimizer.step()

    return step


def with_products(torch: Any, mode: str) -> Step:
    """Multiply large matrices with a switch left on: whatever it does a call, they outweigh it."""
    if mode == "anomaly":
        torch.autograd.set_detect_anomaly(True)
    if mode == "deterministic":
        torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.randn(1024, 1024)

    def step() -> None:
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()

    def profiled() -> None:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            for _ in range(4):
                step()

    return profiled if mode == "profiler" else step


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


STACKS = {"with_stack": True, "record_shapes": True}
SMALL = (64, 12, 8)
ANOMALY, PROFILER = "no_anomaly_mode", "no_profiler"
DETERMINED = "deterministic"
CASES = (
    Case("small layers", ANOMALY, "helps", 60, lambda t: with_anomaly_mode(t, *SMALL)),
    Case("large layers", ANOMALY, "helps", 6, lambda t: with_anomaly_mode(t, 768, 4, 256)),
    Case("small layers", PROFILER, "helps", 3, lambda t: with_profiler(t, *SMALL)),
    Case("stacks and shapes", PROFILER, "helps", 3, lambda t: with_profiler(t, *SMALL, **STACKS)),
    Case("large layers", PROFILER, "nothing", 1, lambda t: with_profiler(t, 512, 2, 256)),
    Case("sums into a table", "no_deterministic", "nothing", 20, lambda t: with_sums(t, 50_000)),
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
        *("denormal moments in Adam", "flush_denormal", "helps", 10),
        lambda t: with_decayed_moments(t, 1e-39),
    ),
    Case(
        *("normal moments in Adam", "flush_denormal", "nothing", 10),
        lambda t: with_decayed_moments(t, 1e-10),
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
    Case("denormal weights", "flush_denormal", "nothing", 10, lambda t: with_denormals(t, 1e-39)),
    Case("large products", ANOMALY, "nothing", 6, lambda t: with_products(t, "anomaly")),
    Case("large products", PROFILER, "nothing", 1, lambda t: with_products(t, "profiler")),
    Case(
        "large products", "no_deterministic", "nothing", 2, lambda t: with_products(t, DETERMINED)
    ),
    Case("images shifted", "no_deterministic", "helps", 20, with_shifts),
    Case("room for the longest row", "no_deterministic", "helps", 20, with_buffers),
    Case("a small head alone", "no_checkpointing", "nothing", 4, with_one_checkpoint),
    Case(
        *("products without denormals", "flush_denormal", "nothing", 40),
        lambda t: with_denormals(t, 1.0),
    ),
)
