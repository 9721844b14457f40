"""How often healthy losses raise an alarm, and how often a planted spike is found.

    python benchmarks/run/loss_alarms.py [--seeds 20] [--updates 3000]

Losses of 20 healthy shapes are drawn with seeds (tests/healthy_curves.py) and judged as those of a
run. Then the same curves get a spike of five updates, as high as stated in multiples of all that
the loss spans after its first tenth. Results go to benchmarks/results/loss_alarms.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

BENCHMARKS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCHMARKS.parent / "tests")]

from healthy_curves import SHAPES, draw  # noqa: E402
from steptime.diagnose.ailments.health.numerical_health import find_spike  # noqa: E402
from unit.test_loss_curves import measured, num_alarms  # noqa: E402

HEIGHTS = (0.5, 1.0, 2.0, 5.0, 10.0)
FIRST_SEED = 10
SPIKE_UPDATES = 5


def is_found(losses: list[float], *, at: int, height: float) -> bool:
    """Whether a spike of this height is found within three updates of its place."""
    part = losses[len(losses) // 10 :]
    rise = height * (max(part) - min(part))
    spiked = [y + rise * (at <= t < at + SPIKE_UPDATES) for t, y in enumerate(losses)]
    finding = find_spike(measured(spiked))
    values = {} if finding is None else {one.name: one.value for one in finding.evidence}
    return at < values.get("first_update", -1) <= at + 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--updates", type=int, default=3000)
    options = parser.parse_args()
    n, seeds = options.updates, range(FIRST_SEED, FIRST_SEED + options.seeds)
    alarms, found = {}, dict.fromkeys(map(str, HEIGHTS), 0)
    for shape in SHAPES:
        curves = [draw(shape, seed=seed, n=n) for seed in seeds]
        alarms[shape.__name__] = sum(num_alarms(measured(losses)) for losses in curves)
        for height in HEIGHTS:
            hits = sum(is_found(losses, at=n * 2 // 3, height=height) for losses in curves)
            found[str(height)] += hits
        print(
            f"{shape.__name__:<20}{alarms[shape.__name__]:4} alarms in {n * len(seeds):,} updates"
        )
    num = n * len(seeds) * len(SHAPES)
    results = {
        **stamp(),
        "updates": num,
        "alarms": alarms,
        "alarms_in_1000_updates": 1000 * sum(alarms.values()) / num,
        "spikes_found": {
            height: hits / (len(seeds) * len(SHAPES)) for height, hits in found.items()
        },
        "seeds": [seeds.start, seeds.stop],
    }
    print(f"{sum(alarms.values())} alarms in {num:,} updates")
    print(f"spikes found by their height: {results['spikes_found']}")
    (BENCHMARKS / "results" / "loss_alarms.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
