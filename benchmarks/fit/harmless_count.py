"""What a count changes: models that are odd, before and after `steptime.count`.

    python benchmarks/fit/harmless_count.py [--before FOLDER] [--only NAME ...] [--out FILE]

The models are those of the tests (`tests/odd_models.py`): each changes something when it is called.
For each, everything there is (elements, versions, attributes, gradients, random numbers, settings)
is compared before and after a count, before and after a count whose model raises half-way, and a
training that goes on with one that was never counted. Jagged tensors run in processes of their own,
because torch may end them. For tuples, the backward that was counted is set beside that of the
loss. `--before` is the `src` folder of an earlier version, whose table is put beside ours. The
tables go to benchmarks/results/harmless_count.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

BENCHMARKS = Path(__file__).resolve().parents[1]
TESTS = BENCHMARKS.parent / "tests"
OUT = BENCHMARKS / "results" / "harmless_count.json"
LIMIT_S = 600

JAGGED = ("jagged input", "jagged attention", "jagged inside")
TUPLES = ("logits and a number", "features and a temperature")

# -- in a process of its own


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What differs, in words."""
    process = [
        name for name in before["process"] if before["process"][name] != after["process"][name]
    ]
    others = [name for name in before if name != "process" and before[name] != after[name]]
    return [*others, *process]


def of_model(name: str) -> dict[str, Any]:
    """What a count of one odd model changed."""
    from deep_state import Bomb, Burst, count, everything, seed, train
    from odd_models import ODD

    seed()
    odd, found = ODD[name](), {}
    before = everything(odd)
    with Bomb(None, Burst) as whole:
        found["error"] = _attempt(lambda: count(odd))
    found["changed"] = changed(before, everything(odd))
    seed()
    counted = ODD[name]()
    seed()
    other = ODD[name]()
    _attempt(lambda: count(counted))
    found["trains_on"] = train(counted) == train(other)
    seed()
    odd = ODD[name]()
    before = everything(odd)
    with Bomb(whole.num // 2, Burst):
        _attempt(lambda: count(odd))
    return found | {"changed_by_an_error": changed(before, everything(odd))}


def of_jagged(name: str) -> dict[str, Any]:
    """What becomes of a layer that is counted with nested tensors."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention as attend

    import steptime

    layer, packed = torch.nn.Linear(16, 16), torch.randn(8, 16)
    parts, ends = [packed[:3], packed[3:]], torch.tensor([0, 3, 8])
    nested = torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=True)

    def attention(x: Any) -> Any:
        heads = layer(x).unflatten(-1, [2, 8]).transpose(1, 2)
        return attend(heads, heads, heads).transpose(1, 2).flatten(-2)

    def inside(x: Any) -> Any:
        return attention(torch.nested.nested_tensor_from_jagged(x, ends)).values().sum()

    calls = {"jagged input": (layer, nested), "jagged attention": (attention, nested)}
    error = _attempt(lambda: steptime.count(*calls.get(name, (inside, packed))))
    return {"error": error, "works_afterwards": _attempt(lambda: inside(packed).backward()) is None}


def of_tuple(name: str) -> dict[str, Any]:
    """The backward that is counted of what is trained."""
    import torch
    from torch import nn

    import steptime

    layers, x = nn.ModuleList(nn.Linear(64, 64) for _ in range(4)), torch.randn(32, 64)

    def features(x: Any) -> Any:
        for layer in layers[:3]:
            x = layer(x)
        return x

    def call(x: Any) -> Any:
        if name == TUPLES[0]:
            return features(x), layers[3](x).mean()
        return features(x), layers[3](x), layers[0].weight[0, 0].exp()

    def loss(x: Any) -> Any:
        return sum(one.sum() for one in call(x))

    counted: dict[str, Any] = {"true": steptime.count(loss, x).backward}
    try:
        counted["said"] = steptime.count(call, x).backward
    except Exception as error:  # an older version knows no error for it
        counted["error"] = f"{type(error).__name__}: {error}"[:160]
    return counted


def _attempt(call: Callable[[], Any]) -> str | None:
    try:
        call()
    except BaseException as error:
        return f"{type(error).__name__}: {error}"[:160]
    return None


def names() -> list[str]:
    """All cases."""
    sys.path.insert(0, str(TESTS))
    from odd_models import ODD

    return [*ODD, *JAGGED, *TUPLES]


def run_here(cases: list[str]) -> None:
    """Run cases and write a line for each."""
    sys.path.insert(0, str(TESTS))
    warnings.simplefilter("ignore")
    for name in cases:
        of = of_jagged if name in JAGGED else of_tuple if name in TUPLES else of_model
        print(json.dumps({"name": name} | of(name)), flush=True)


# -- from outside


def rows_of(cases: list[str], source: Path | None) -> Iterator[dict[str, Any]]:
    """Run all cases with one version; whoever ends the process has its own row."""
    pending = list(cases)
    while pending:
        batch = (
            pending[:1] if pending[0] in JAGGED else [one for one in pending if one not in JAGGED]
        )
        own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "STEPTIME"))}
        own |= {"OMP_NUM_THREADS": "1"} | ({} if source is None else {"PYTHONPATH": str(source)})
        command = [sys.executable, __file__, "--here", *batch]
        done = subprocess.run(
            command, env=own, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        yield from found
        over = {one["name"] for one in found}
        if len(found) < len(batch):
            lost = batch[len(found)]
            told = done.stderr.strip().splitlines() or ["nothing"]
            said = next((one for one in told if "what():" in one or "operator" in one), told[-1])
            yield {"name": lost, "error": f"process ended with {done.returncode}: {said}"[:160]}
            over.add(lost)
        pending = [one for one in pending if one not in over]


def is_harmless(row: dict[str, Any]) -> bool:
    """Whether nothing changed, or a clear refusal left all as it was."""
    if "true" in row:
        return "error" in row or row.get("said") == row["true"]
    if "works_afterwards" in row:
        return bool(row["works_afterwards"]) and "UsageError" in str(row["error"])
    changes = [*row.get("changed", ["?"]), *row.get("changed_by_an_error", ["?"])]
    return not changes and bool(row.get("trains_on")) and row["error"] is None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--before", type=Path)
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--here", nargs="+", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.here:
        run_here(asked.here)
        return
    cases = [one for one in names() if asked.only is None or one in asked.only]
    tables = {"now": list(rows_of(cases, None))}
    if asked.before is not None:
        tables["before"] = list(rows_of(cases, asked.before.resolve()))
    for version, rows in tables.items():
        harmless = sum(map(is_harmless, rows))
        print(f"{version}: {harmless} of {len(rows)} as they were")
        for row in rows:
            if not is_harmless(row):
                print("   ", json.dumps(row))
    asked.out.write_text(json.dumps(stamp() | tables, indent=1) + "\n")


if __name__ == "__main__":
    main()
