"""Which level catches which harm: planted changes of a small real training, by level.

    python benchmarks/verify/verify_plants.py --data FOLDER_OF_MNIST

A perceptron of one hidden layer on 2,000 images of MNIST, 7 by 7 pixels: 300 steps of 32 by SGD
with momentum and a rate that falls to zero, evaluated on 1,000 test images after every 15 steps,
six seeds of each. A training change alters the bits on purpose, so L0 asks whether the training
repeats itself, and whether seeds are distinct. L1 is the product's check of the first update
against float64 (`verify.numerics`); L2 its lockstep (`verify.lockstep`) of a run with the
reference's seed, over all steps, against three whose first weights differ in their last bit; data
its checks of orders (`data.check`), with the samples of each epoch; L3 the judge over seeds, of the
loss with margins of 2 % and 5 % of the training, and of the accuracy; slices the recall of each
class, judged as L3 with a margin of 0.1. Results go to benchmarks/results/verify_plants.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from verify_scripts.mnist_convnet import read

from steptime.data.check.epoch_checks import check_reshuffled
from steptime.data.check.seen_orders import LoaderSeen, PassSeen
from steptime.errors import RunsError
from steptime.verify.convergence.judge_training import judge_training
from steptime.verify.lockstep import check_lockstep
from steptime.verify.numerics import Rulers, check_one_step
from steptime.verify.recordings import End, Head, RankRecording, RecordedUpdate, Recording
from steptime.verify.values.seed_runs import Margin, TrainingQuestion, TrainingRun, Unit

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

RESULTS = Path(__file__).resolve().parents[1] / "results" / "verify_plants.json"
STEPS, EVERY, BATCH, RATE = 300, 15, 32, 0.1
NUM_TRAIN, NUM_TEST, SEEDS = 2000, 1000, 6
ROUNDOFF = 2.0**-24
LOCKSTEP_SEED = 0


@dataclass(frozen=True, kw_only=True)
class Plant:
    """A training with a harm; the defaults have none."""

    rate: float = 1.0
    noise: float = 0.0
    cut: float = 0.0
    dropped: int | None = None
    logits: float = 1.0
    one_seed: bool = False
    one_order: bool = False
    bf16_weights: bool = False


PLANTS = {
    "nothing (A/A)": Plant(),
    "learning rate x0.7": Plant(rate=0.7),
    "2 % label noise": Plant(noise=0.02),
    "last 5 % of steps cut": Plant(cut=0.05),
    "one class dropped": Plant(dropped=3),
    "logits x1.5 at evaluation": Plant(logits=1.5),
    "reused seed": Plant(one_seed=True),
    "order not reshuffled": Plant(one_order=True),
    "bf16 master weights": Plant(bf16_weights=True),
}


class Trained:
    """One training, and what the levels need of it."""

    def __init__(
        self, data: tuple[Any, ...], plant: Plant, seed: int, *, type_: Any, flips: int = 0
    ) -> None:
        self.x, self.y, self.test_x, self.test_y = data
        self.plant = plant
        self.chance = torch.Generator().manual_seed(seed)
        self.draws = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(49, 32), nn.ReLU(), nn.Linear(32, 10)).to(type_)
        if flips:  # the last bit of one weight, as `steptime tune` perturbs a baseline
            with torch.no_grad():
                weight = self.model[0].weight.view(-1)[flips - 1]
                weight.copy_(torch.nextafter(weight, torch.tensor(torch.inf)))
        self.type_ = type_
        self.step_losses: list[float] = []
        self.sizes: dict[int, float] = {}
        self.points: list[float] = []
        self.losses: list[float] = []
        self.accuracies: list[float] = []
        self.recalls: list[list[float]] = []
        self.orders: list[list[int]] = []
        self.first: dict[tuple[int, str, str], list[float]] = {}

    def rows(self) -> torch.Tensor:
        """The samples that are trained on."""
        if self.plant.dropped is None:
            return torch.arange(len(self.y))
        return (self.y != self.plant.dropped).nonzero().flatten()

    def run(self, steps: int) -> Trained:
        plant, rows = self.plant, self.rows()
        labels = self.y.clone()
        wrong = torch.rand(len(labels), generator=self.chance) < plant.noise
        labels[wrong] = torch.randint(10, (int(wrong.sum()),), generator=self.chance)
        rate = RATE * plant.rate
        optimizer = torch.optim.SGD(self.model.parameters(), lr=rate, momentum=0.9)
        at, order = len(rows), torch.empty(0)
        for step in range(1, steps + 1):
            for group in optimizer.param_groups:
                group["lr"] = rate * (1 - (step - 1) / steps)
            if at + BATCH > len(rows):
                if not self.orders or not plant.one_order:
                    order = rows[torch.randperm(len(rows), generator=self.draws)]
                self.orders.append(order.tolist())
                at = 0
            batch, at = order[at : at + BATCH], at + BATCH
            before = {n: p.detach().clone() for n, p in self.model.named_parameters()}
            loss = nn.functional.cross_entropy(
                self.model(self.x[batch].to(self.type_)), labels[batch]
            )
            self.step_losses.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if plant.bf16_weights:
                with torch.no_grad():
                    for weight in self.model.parameters():
                        weight.copy_(weight.bfloat16())
            if step == 1:
                self._keep_first(before)
            if step % EVERY == 0:
                self._evaluate(step)
        return self

    def _keep_first(self, before: dict[str, torch.Tensor]) -> None:
        for name, weight in self.model.named_parameters():
            change = weight.detach() - before[name]
            self.first[0, "gradient", name] = weight.grad.double().flatten().tolist()
            self.first[0, "change", name] = change.double().flatten().tolist()

    def _evaluate(self, step: int) -> None:
        with torch.no_grad():
            logits = self.model(self.test_x.to(self.type_)) * self.plant.logits
        self.sizes[step] = float(logits.double().norm())
        right = (logits.argmax(1) == self.test_y).double()
        self.points.append(float(step))
        self.losses.append(nn.functional.cross_entropy(logits, self.test_y).item())
        self.accuracies.append(right.mean().item())
        self.recalls.append([right[self.test_y == k].mean().item() for k in range(10)])

    def curve(self, arm: str, seed: int, values: list[float]) -> TrainingRun:
        return TrainingRun(arm=arm, seed=str(seed), points=tuple(self.points), values=tuple(values))


def by_l1(data: tuple[Any, ...], plant: Plant) -> str:
    """Return what the first update says."""
    arms = ((Plant(), torch.float64), (Plant(), torch.float32), (plant, torch.float32))
    truth, base, ours = (Trained(data, one, 1, type_=kind).run(1).first for one, kind in arms)
    rulers = Rulers(truth=truth, baseline=base, perturbed=(), roundoff=ROUNDOFF, is_double=True)
    checks = check_one_step(rulers, ours)
    return "FAIL" if any(one.outcome.value == "FAIL" for one in checks) else "PASS"


def recorded(run: Trained) -> Recording:
    """Return what a quality run would have recorded of the losses and of the evaluations."""
    none = dict.fromkeys(("evals", "grads", "mask", "weights", "moved", "stats", "modes"), 0)
    none |= dict.fromkeys(("hyper", "kinds", "draws", "samples", "opt"), 0)
    empty = dict.fromkeys(("inputs", "fed", "epochs", "lrs"), ())
    updates = tuple(
        RecordedUpdate(
            n=n,
            losses=(loss.hex(),),
            evaluated=(run.sizes[n].hex(),) if n in run.sizes else (),
            backwards=1,
            **none,
            **empty,
        )
        for n, loss in enumerate(run.step_losses)
    )
    head = Head(
        schema=1,
        rank=0,
        world_size=1,
        num_updates=STEPS,
        is_double=False,
        perturb=None,
        initial=0,
    )
    end = End(n=len(updates), evals=0, failures=())
    rank = RankRecording(head=head, updates=updates, tables=(), first=(), norms=(), end=end)
    return Recording(ranks=(rank,))


def by_l2(data: tuple[Any, ...], baseline: Trained, plant: Plant) -> str:
    """Return what lockstep says of a run with the baseline's seed, and which checks fail."""
    seed = LOCKSTEP_SEED
    flipped = [Trained(data, Plant(), seed, type_=torch.float32, flips=n) for n in (1, 2, 3)]
    others = [recorded(one.run(STEPS)) for one in flipped]
    candidate = Trained(data, plant, seed, type_=torch.float32).run(round(STEPS * (1 - plant.cut)))
    checks = check_lockstep(recorded(baseline), others, recorded(candidate))
    failed = [one.name for one in checks if one.outcome.value != "PASS"]
    outcomes = {one.outcome.value for one in checks}
    if "FAIL" in outcomes:
        return f"FAIL: {', '.join(failed)}"
    return "INCONCLUSIVE" if failed else "PASS"


def by_data(reference: Trained, candidate: Trained) -> str:
    """Return what the orders say: the samples of an epoch, and whether it is shuffled again."""
    if Counter(reference.orders[0]) != Counter(candidate.orders[0]):
        return "FAIL: other samples"
    seen = LoaderSeen(number=0, nature={})
    for number, order in enumerate(candidate.orders[:3]):
        passed = PassSeen(number=number, epoch=None, is_whole=True, order=order)
        seen.passes.append(replace(passed, sizes=[BATCH] * (len(order) // BATCH), trained=True))
    outcome = check_reshuffled(seen).outcome.value
    return "PASS" if outcome == "PASS" else f"{outcome}: reshuffled"


def by_l3(runs: list[TrainingRun], margin: Margin, *, is_better_down: bool = True) -> str:
    try:
        question = TrainingQuestion(margin=margin, is_better_down=is_better_down)
        found = judge_training(runs, question)
    except RunsError as error:
        return f"error {error.code}"
    return found.outcome.value


def judge_plant(data: tuple[Any, ...], reference: list[Trained], plant: Plant) -> dict[str, str]:
    """Return what each level says of a plant."""
    steps = round(STEPS * (1 - plant.cut))
    # Seeds of its own: pairs were not declared.
    seeds = [7] * SEEDS if plant.one_seed else list(range(101, 101 + SEEDS))
    arm = [Trained(data, plant, seed, type_=torch.float32).run(steps) for seed in seeds]
    pairs = [*zip(reference, ["reference"] * SEEDS, range(SEEDS), strict=True),
             *zip(arm, ["candidate"] * SEEDS, seeds, strict=True)]  # fmt: skip
    loss = [run.curve(name, seed, run.losses) for run, name, seed in pairs]
    accuracy = [run.curve(name, seed, run.accuracies) for run, name, seed in pairs]
    slices = [
        by_l3([run.curve(name, seed, [one[k] for one in run.recalls]) for run, name, seed in pairs],
              Margin(amount=0.1), is_better_down=False)
        for k in range(10)
    ]  # fmt: skip
    # A class that no run ever gets right is constant, which the judge refuses by name.
    failed = [f"{k} ({one})" for k, one in enumerate(slices) if one == "FAIL" or "zero" in one]
    told = f"class {', '.join(failed)}" if failed else Counter(slices).most_common(1)[0][0]
    replayed = Trained(data, plant, seeds[0], type_=torch.float32).run(steps)
    return {
        "L0 seeds": "FAIL: reused" if len(set(seeds)) < len(seeds) else "PASS",
        "L0 replay": "same" if replayed.losses == arm[0].losses else "differs",
        "data": by_data(reference[0], arm[0]),
        "L1": by_l1(data, plant),
        "L2": by_l2(data, reference[LOCKSTEP_SEED], plant),
        "L3 loss, 2 % of training": by_l3(loss, Margin(amount=2, unit=Unit.TRAINING)),
        "L3 loss, 5 % of training": by_l3(loss, Margin(amount=5, unit=Unit.TRAINING)),
        "L3 accuracy, 0.01": by_l3(accuracy, Margin(amount=0.01), is_better_down=False),
        "slices": told,
    }


def main() -> None:
    """Train, print a row for each plant, and save them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", required=True, help="folder of MNIST's four files")
    options = parser.parse_args()
    torch.set_num_threads(1)
    images = [
        nn.functional.avg_pool2d(read(options.data, f"{part}-images")[:n], 4).flatten(1)
        for part, n in (("train", NUM_TRAIN), ("t10k", NUM_TEST))
    ]
    labels = [
        read(options.data, f"{part}-labels")[:n]
        for part, n in (("train", NUM_TRAIN), ("t10k", NUM_TEST))
    ]
    data = (images[0], labels[0], images[1], labels[1])
    reference = [
        Trained(data, Plant(), seed, type_=torch.float32).run(STEPS) for seed in range(SEEDS)
    ]
    rows = {}
    for name, plant in PLANTS.items():
        rows[name] = judge_plant(data, reference, plant)
        print(f"{name}: {rows[name]}", flush=True)
    RESULTS.write_text(
        json.dumps(
            {
                "rows": rows,
                "seeds": SEEDS,
                "steps": STEPS,
                "num_train": NUM_TRAIN,
                "num_test": NUM_TEST,
                "torch": torch.__version__,
                **stamp(),
                "python": platform.python_version(),
            },
            indent=1,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
