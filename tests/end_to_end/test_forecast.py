"""The peak of a script's step, forecast in a contained child whose parameters have no memory."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import pytest

from end_to_end.contained import require
from end_to_end.harness import needs_linux, needs_torch
from steptime.errors import NotStartedError
from steptime.isolate.tiers import Tier
from steptime.plan.values import MemoryForecast
from steptime.tune.trials.children.forecast_child import ForecastWish, forecast_in_child

pytestmark = [needs_torch, needs_linux]

HEAD = """
import copy, torch
from torch import nn
torch.manual_seed(0)
"""

LOOP = """
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
average = copy.deepcopy(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
rows = torch.randn(512, 64), torch.randint(10, (512,))
for x, y in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*rows), 32):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    if torch.isnan(loss):
        raise SystemExit("not finite")
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(f"{loss:.3f} {loss.item()} {norm:.2f}", model[0].weight.detach().numpy().shape)
"""


def forecast(
    folder: Path, code: str, *, cap_bytes: int | None = None, measure: bool = False
) -> MemoryForecast:
    require(Tier.ISOLATED)
    script = folder / "train.py"
    script.write_text(HEAD + textwrap.dedent(code))
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "STEPTIME"))}
    return forecast_in_child(
        (sys.executable, str(script)),
        own | {"OMP_NUM_THREADS": "1"},
        folder=folder / "store" / "forecast",
        cwd=folder,
        wish=ForecastWish(cap_bytes=cap_bytes, measure=measure),
    ).memory


def test_a_script_that_logs_and_clips_is_forecast(tmp_path: Path) -> None:
    found = forecast(tmp_path, LOOP)
    weights = 4 * (64 * 256 + 256 + 256 * 10 + 10)

    assert found.peak is not None, found.unknown
    assert found.peak.low < found.peak.estimate < found.peak.high
    assert found.by_category["weights"] == weights
    assert found.by_category["optimizer"] == 2 * weights + 4 * 4
    assert found.by_category["others"] >= weights + 512 * (64 * 4 + 8)  # the average, the rows
    assert found.phase == "optimizer"
    assert not [path for path in tmp_path.iterdir() if path.name not in ("train.py", "store")]


def test_a_model_that_is_larger_than_the_child_may_be_is_forecast(tmp_path: Path) -> None:
    found = forecast(
        tmp_path,
        """
        model = nn.Sequential(*(nn.Linear(16384, 16384, bias=False) for _ in range(64)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(8, 16384)).square().mean().backward()
            optimizer.step()
        """,
        cap_bytes=8 << 30,
    )

    assert found.peak is not None, found.unknown
    assert found.by_category["weights"] == found.by_category["optimizer"] == 64 << 30
    assert found.peak.estimate > 190 << 30


def test_two_optimizers_in_turns_have_both_states(tmp_path: Path) -> None:
    found = forecast(
        tmp_path,
        """
        one, two = nn.Linear(128, 128, bias=False), nn.Linear(128, 128, bias=False)
        steppers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (one, two)]
        for _ in range(6):
            for stepper in steppers:
                stepper.zero_grad()
                two(one(torch.randn(8, 128))).square().mean().backward()
                stepper.step()
        """,
    )

    assert found.by_category["optimizer"] == 2 * 128 * 128 * 4


@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("print('nothing to train')", "never_steps"),
        ("raise SystemExit('no such data set')", "script_failed: no such data set"),
    ],
)
def test_a_script_that_never_steps_is_said(tmp_path: Path, code: str, word: str) -> None:
    found = forecast(tmp_path, code)

    assert (found.peak, found.how, found.unknown) == (None, "none", (word,))


UNKNOWN = """
@torch.library.custom_op("mine::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2
twice.register_autograd(lambda context, gradient: gradient * 2)
model = nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    twice(model(torch.randn(64, 64))).square().mean().backward()
    optimizer.step()
"""


def test_an_operator_without_a_fake_kernel_is_named_and_measured(tmp_path: Path) -> None:
    (tmp_path / "fake").mkdir()
    (tmp_path / "measured").mkdir()

    without = forecast(tmp_path / "fake", UNKNOWN)
    measured = forecast(tmp_path / "measured", UNKNOWN, measure=True)

    assert (without.peak, without.unknown) == (None, ("no_fake_kernel: mine.twice.default",))
    assert measured.peak is not None
    assert measured.how == "measured"


def test_a_command_that_is_not_there_is_said(tmp_path: Path) -> None:
    require(Tier.ISOLATED)
    with pytest.raises(NotStartedError, match="no_such_program"):
        forecast_in_child(
            ("no_such_program",),
            dict(os.environ),
            folder=tmp_path / "store" / "f",
            cwd=tmp_path,
            wish=ForecastWish(),
        )
