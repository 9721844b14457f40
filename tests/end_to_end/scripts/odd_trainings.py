"""Small trainings, each observed on its own in this process; what was found of each, as JSON.

The functions of `HEALTHY` train in ways that look odd and are right; each of `FAULTY` plants one
fault, and has a twin above. Usage: `odd_trainings.py STORE OUT`.
"""

from __future__ import annotations

import copy
import json
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info
from torch.utils.data.distributed import DistributedSampler

from steptime.core.store import create_run, write_value
from steptime.diagnose.ailments.memory.memory_peaks import KEPT_OUTPUTS
from steptime.diagnose.ailments.sense import senseless
from steptime.guest import late
from steptime.launch.origin import describe_run
from steptime.measure.fold.run_fold import measure
from steptime.measure.fold.run_records import read_records
from steptime.measure.source.scan import write_source

HERE = Path(__file__).parent
UPDATES = 60
ASKED = (*senseless.AILMENTS, KEPT_OUTPUTS)
Act = Callable[[], Any]
HEALTHY: list[Act] = []
FAULTY: list[Act] = []


def healthy(act: Act) -> Act:
    HEALTHY.append(act)
    return act


def faulty(act: Act) -> Act:
    FAULTY.append(act)
    return act


def small(*, dropout: float = 0.0, outputs: int = 1) -> nn.Sequential:
    parts = [nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*parts, nn.Linear(16, outputs))


def batch(rows: int = 8, outputs: int = 1) -> tuple[Any, Any]:
    return torch.randn(rows, 6), torch.randn(rows, outputs)


def sgd(*models: nn.Module, rate: float = 0.01) -> torch.optim.Optimizer:
    return torch.optim.SGD([w for m in models for w in m.parameters()], rate, momentum=0.9)


def loss_of(model: nn.Module) -> Any:
    x, y = batch()
    return functional.mse_loss(model(x), y)


def update(optimizer: torch.optim.Optimizer, loss: Any) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


# -- what clears gradients


@healthy
def clears_after_the_step() -> None:
    model = small()
    optimizer = sgd(model)
    for _ in range(UPDATES):
        loss_of(model).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


@healthy
def clears_by_none_by_hand() -> None:
    model = small()
    optimizer = sgd(model)
    for _ in range(UPDATES):
        loss_of(model).backward()
        optimizer.step()
        for weight in model.parameters():
            weight.grad = None


@healthy
def clears_the_data_of_gradients() -> None:
    model = small()
    optimizer = sgd(model)
    for _ in range(UPDATES):
        for weight in model.parameters():
            if weight.grad is not None:
                weight.grad.data.zero_()
        loss_of(model).backward()
        optimizer.step()


@healthy
def clears_by_the_model() -> None:
    model = small()
    optimizer = sgd(model)
    for _ in range(UPDATES):
        model.zero_grad(set_to_none=False)
        loss_of(model).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


@healthy
def accumulates_four_micro_batches() -> None:
    model = small()
    optimizer = sgd(model)
    for micro in range(4 * UPDATES):
        (loss_of(model) / 4).backward()
        if micro % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


@healthy
def decays_its_gradients() -> None:
    model = small()
    optimizer = sgd(model)
    for _ in range(UPDATES):
        for weight in model.parameters():
            if weight.grad is not None:
                weight.grad.mul_(0.5)
        loss_of(model).backward()
        optimizer.step()


@healthy
def gan_with_two_optimizers() -> None:
    maker, judge = nn.Linear(4, 6), nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    first, second = sgd(maker), sgd(judge)
    for _ in range(UPDATES):
        made = maker(torch.randn(8, 4))
        second.zero_grad(set_to_none=False)
        real = functional.binary_cross_entropy_with_logits(judge(batch()[0]), torch.ones(8, 1))
        fake = functional.binary_cross_entropy_with_logits(judge(made.detach()), torch.zeros(8, 1))
        (real + fake).backward()
        second.step()
        first.zero_grad(set_to_none=False)
        functional.binary_cross_entropy_with_logits(judge(made), torch.ones(8, 1)).backward()
        first.step()


@healthy
def gan_whose_judge_is_in_evaluation_mode_for_the_maker() -> None:
    maker, judge = nn.Linear(4, 6), small(dropout=0.3)
    first, second = sgd(maker), sgd(judge)
    for _ in range(UPDATES):
        judge.train()
        made = maker(torch.randn(8, 4))
        update(second, judge(batch()[0]).mean() - judge(made.detach()).mean())
        judge.eval()
        update(first, judge(made).mean())


@healthy
def updates_by_hand() -> None:
    model = small()
    for _ in range(UPDATES):
        loss_of(model).backward()
        with torch.no_grad():
            for weight in model.parameters():
                weight.sub_(0.01 * weight.grad)
                weight.grad = None


@healthy
def gradients_by_autograd_grad() -> None:
    model = small()
    optimizer = sgd(model)
    for _ in range(UPDATES):
        weights = list(model.parameters())
        for weight, gradient in zip(
            weights, torch.autograd.grad(loss_of(model), weights), strict=True
        ):
            weight.grad = gradient
        optimizer.step()


@healthy
def gradient_penalty() -> None:
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = sgd(model)
    for _ in range(UPDATES):
        x = batch()[0].requires_grad_()
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        update(optimizer, loss_of(model) + 0.1 * (slope.norm(dim=1) - 1).pow(2).mean())


@healthy
def backward_twice_through_one_graph() -> None:
    model = small()
    optimizer = sgd(model)
    for _ in range(UPDATES):
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward(retain_graph=True)
        loss.backward()
        optimizer.step()


@healthy
def lbfgs_with_a_closure() -> None:
    model = nn.Linear(6, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    x, y = batch(32)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    for _ in range(UPDATES):
        optimizer.step(closure)


@healthy
def several_losses_and_a_frozen_backbone() -> None:
    backbone, head, other = small(outputs=4), nn.Linear(4, 1), nn.Linear(4, 3)
    backbone.requires_grad_(False).eval()
    optimizer = sgd(head, other)
    for _ in range(UPDATES):
        x, y = batch()
        seen = backbone(x)
        kinds = functional.cross_entropy(other(seen), torch.randint(0, 3, (8,)))
        update(optimizer, functional.mse_loss(head(seen), y) + 0.5 * kinds)


@healthy
def steps_inside_backward() -> None:
    model = nn.Linear(6, 1)
    each = {weight: torch.optim.SGD([weight], 0.01) for weight in model.parameters()}

    def step(weight: Any) -> None:
        each[weight].step()
        each[weight].zero_grad()

    for weight in model.parameters():
        weight.register_post_accumulate_grad_hook(step)
    for _ in range(UPDATES):
        loss_of(model).backward()


@faulty
def never_cleared() -> None:
    model = small()
    optimizer = sgd(model, rate=1e-5)
    for _ in range(UPDATES):
        loss_of(model).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1e9)
        optimizer.step()


@faulty
def one_of_two_never_cleared() -> None:
    body, head = nn.Linear(6, 8), nn.Linear(8, 1)
    first, second = sgd(body, rate=1e-5), sgd(head)
    for _ in range(UPDATES):
        x, y = batch()
        second.zero_grad()
        functional.mse_loss(head(body(x)), y).backward()
        first.step()
        second.step()


# -- rates and schedulers


def schedule(factor: Callable[[int], float], *, per_update: int = 1, every: int = 1) -> None:
    model = small()
    optimizer = sgd(model)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    for number in range(2 * UPDATES):
        optimizer.zero_grad()
        for _ in range(per_update):
            (loss_of(model) / per_update).backward()
            if number % every == 0:
                scheduler.step()
        optimizer.step()


@healthy
def warms_up_from_zero() -> None:
    schedule(lambda step: min(1.0, step / 30))


@healthy
def first_epoch_of_a_warm_up_per_epoch() -> None:
    schedule(lambda step: step / 2, every=40)


@healthy
def cosine_that_ends_at_zero() -> None:
    model = small()
    optimizer = sgd(model)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2 * UPDATES - 1)
    for _ in range(2 * UPDATES):
        update(optimizer, loss_of(model))
        scheduler.step()


@healthy
def schedule_that_counts_micro_batches() -> None:
    schedule(lambda step: 1 - step / (8 * UPDATES + 8), per_update=4)


@healthy
def plateau_that_never_comes() -> None:
    model = small()
    optimizer = sgd(model)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1000)
    for _ in range(UPDATES):
        loss = loss_of(model)
        update(optimizer, loss)
        scheduler.step(loss.item())


@healthy
def a_part_whose_rate_ends_at_zero() -> None:
    body, head = nn.Linear(6, 8), nn.Linear(8, 1)
    optimizer = torch.optim.AdamW([{"params": body.parameters()}, {"params": head.parameters()}])
    for number in range(UPDATES):
        optimizer.param_groups[0]["lr"] = 0.0 if number > 20 else 1e-3
        x, y = batch()
        update(optimizer, functional.mse_loss(head(body(x)), y))


@healthy
def rate_in_a_tensor() -> None:
    model = small()
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-3), foreach=False)
    for _ in range(UPDATES):
        update(optimizer, loss_of(model))
        optimizer.param_groups[0]["lr"].mul_(0.99)


@faulty
def schedule_per_micro_batch() -> None:
    schedule(lambda step: max(0.0, 1 - step / (2 * UPDATES)), per_update=4)


@faulty
def schedule_too_short() -> None:
    schedule(lambda step: max(0.0, 1 - step / 40))


def scheduled(
    make: Callable[[Any], Any], *, num: int = 3, step: Callable[[Any, int], Any] | None = None
) -> None:
    model = small()
    optimizer = sgd(model)
    scheduler = make(optimizer)
    loader = DataLoader(TensorDataset(*batch(280)), batch_size=4)
    for epoch in range(num):
        for x, y in loader:
            update(optimizer, functional.mse_loss(model(x), y))
        if step is not None:
            step(scheduler, epoch)


@healthy
def scheduler_of_the_plateau_waits() -> None:
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau
    scheduled(lambda optimizer: plateau(optimizer, patience=100), step=lambda one, _: one.step(1.0))


@healthy
def schedule_of_one_constant() -> None:
    scheduled(
        lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0),
        step=lambda one, _: one.step(),
    )


@healthy
def stopped_before_its_scheduler_stepped() -> None:
    scheduled(lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1), num=2)


@healthy
def scheduler_of_the_last_part_and_of_an_optimizer_that_rests() -> None:
    rests = sgd(small())
    schedules = torch.optim.lr_scheduler
    resting = schedules.CosineAnnealingLR(rests, 10)
    scheduled(lambda optimizer: (resting, torch.optim.swa_utils.SWALR(optimizer, 0.01)))


@healthy
def one_scheduler_after_the_other() -> None:
    schedules = torch.optim.lr_scheduler
    scheduled(
        lambda optimizer: schedules.SequentialLR(
            optimizer,
            [schedules.ConstantLR(optimizer, 1.0), schedules.ExponentialLR(optimizer, 0.9)],
            [10],
        ),
        step=lambda one, _: one.step(),
    )


@healthy
def a_scheduler_beside_rates_set_by_hand() -> None:
    def by_hand(scheduler: Any, epoch: int) -> None:
        scheduler.optimizer.param_groups[0]["lr"] = 0.01 / (epoch + 2)

    scheduled(lambda one: torch.optim.lr_scheduler.StepLR(one, 1), step=by_hand)


@faulty
def the_scheduler_is_never_stepped() -> None:
    scheduled(lambda one: torch.optim.lr_scheduler.CosineAnnealingLR(one, 10))


# -- modes


def evaluate(model: nn.Module) -> None:
    model.eval()
    with torch.no_grad():
        loss_of(model)


@healthy
def evaluates_within_an_epoch() -> None:
    model = small(dropout=0.2)
    optimizer = sgd(model)
    for number in range(UPDATES):
        update(optimizer, loss_of(model))
        if number % 10 == 9:
            evaluate(model)
            model.train()


@healthy
def trains_in_evaluation_mode_from_the_first_update() -> None:
    model = small(dropout=0.2)
    loss_of(model).backward()  # does it run at all?
    model.zero_grad()
    model.eval()
    optimizer = sgd(model)
    for _ in range(UPDATES):
        update(optimizer, loss_of(model))


@healthy
def batch_norm_in_evaluation_mode_after_a_while() -> None:
    model = small(dropout=0.2)
    optimizer = sgd(model)
    for number in range(UPDATES):
        if number == 20:
            model[1].eval()
        update(optimizer, loss_of(model))


@healthy
def evaluation_mode_changes_nothing() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Dropout(0.0), nn.Linear(8, 1))
    optimizer = sgd(model)
    for number in range(UPDATES):
        update(optimizer, loss_of(model))
        if number == 20:
            evaluate(model)


@healthy
def teacher_in_evaluation_mode() -> None:
    model = small(dropout=0.2)
    teacher = copy.deepcopy(model).eval()
    optimizer = sgd(model)
    for _ in range(UPDATES):
        x, _ = batch()
        update(optimizer, functional.mse_loss(model(x), teacher(x).detach()))
        with torch.no_grad():
            torch._foreach_lerp_(list(teacher.parameters()), list(model.parameters()), 0.1)


@healthy
def attacks_its_model_in_evaluation_mode() -> None:
    model = small(dropout=0.2)
    optimizer = sgd(model)
    for _ in range(UPDATES):
        x, y = batch()
        model.eval()
        attacked = x.clone().requires_grad_()
        functional.mse_loss(model(attacked), y).backward()
        model.train()
        update(optimizer, functional.mse_loss(model(x + attacked.grad.sign()), y))


@healthy
def acts_in_evaluation_mode() -> None:
    policy = small(dropout=0.2, outputs=2)
    optimizer = sgd(policy)
    for _ in range(UPDATES):
        policy.eval()
        with torch.no_grad():
            acts = policy(batch()[0]).argmax(1)
        policy.train()
        chances = policy(batch()[0]).log_softmax(1)
        update(optimizer, -(chances.gather(1, acts[:, None]).squeeze(1) * torch.randn(8)).mean())


@healthy
def a_second_model_is_fine_tuned_in_evaluation_mode() -> None:
    first = small(dropout=0.2)
    optimizer = sgd(first)
    for _ in range(UPDATES):
        update(optimizer, loss_of(first))
    second = copy.deepcopy(first).eval()
    optimizer = sgd(second)
    for _ in range(UPDATES):
        update(optimizer, loss_of(second))


@faulty
def evaluation_mode_is_left_on() -> None:
    model = small(dropout=0.2)
    optimizer = sgd(model)
    for number in range(UPDATES):
        update(optimizer, loss_of(model))
        if number == 19:
            evaluate(model)


@faulty
def evaluation_mode_until_the_next_epoch() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.3), nn.Linear(8, 1))
    optimizer = sgd(model)
    for _ in range(3):
        model.train()
        for number in range(UPDATES):
            update(optimizer, loss_of(model))
            if number == 20:
                evaluate(model)


class TwoParts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = small(dropout=0.2, outputs=6), nn.Linear(6, 1)

    def forward(self, x: Any) -> Any:
        return self.head(self.body(x))


def part_by_part(then: Callable[[TwoParts], Any]) -> None:
    """A third of the updates in training mode, then what happens to a part of the model."""
    model = TwoParts()
    optimizer = sgd(model)
    for number in range(UPDATES):
        if number == UPDATES // 3:
            then(model)
        update(optimizer, loss_of(model))


@healthy
def keeps_batch_statistics_later() -> None:
    part_by_part(lambda model: [one.eval() for one in model.body if "Norm" in type(one).__name__])


@healthy
def freezes_a_part_later() -> None:
    part_by_part(lambda model: model.body.eval().requires_grad_(requires_grad=False))


@healthy
def a_part_is_evaluated_and_trains_again() -> None:
    part_by_part(lambda model: [evaluate(model.body.eval()), model.body.train()])


@faulty
def a_part_stays_in_evaluation_mode() -> None:
    part_by_part(lambda model: model.body.eval())


# -- updates of several backward calls


def windows(*, ends: str = "", epochs: int = 4, clears: bool = False) -> None:
    """Updates of four batches, in epochs of ten; `ends` says what the end of an epoch does."""
    model = small()
    optimizer = sgd(model)
    loader = DataLoader(range(40), batch_size=4)
    number = 0
    for _ in range(epochs):
        if clears:
            optimizer.zero_grad()
        number = number if ends == "goes on" else 0
        for one, _ in enumerate(loader, 1):
            number += 1
            (loss_of(model) / 4).backward()
            if ends == "evaluates" and one == 6:
                for _ in DataLoader(range(8), batch_size=4):
                    evaluate(model)
            if not number % 4 or (ends == "steps" and one == len(loader)):
                optimizer.step()
                optimizer.zero_grad()
        if ends == "drops":
            return


@healthy
def an_epoch_ends_with_an_update() -> None:
    windows(ends="steps")


@healthy
def updates_reach_into_the_next_epoch() -> None:
    windows(ends="goes on", epochs=8)


@healthy
def one_epoch_ends_within_an_update() -> None:
    windows(ends="drops", clears=True)


@healthy
def evaluates_within_an_accumulated_update() -> None:
    windows(ends="evaluates", epochs=1)
    windows(ends="goes on", epochs=8)


@faulty
def the_last_batches_are_cleared() -> None:
    windows(clears=True)


@faulty
def the_last_batches_join_the_next_update() -> None:
    windows()


def tokens(share_of: Callable[[Any, int, int], Any], *, shortest: int = 4) -> None:
    """Updates of four micro-batches of texts of unlike lengths; `share_of` weighs each mean."""
    model = nn.Linear(6, 12)
    optimizer = sgd(model)
    for _ in range(12):
        labels = [torch.randint(0, 12, (4, 32)) for _ in range(4)]
        for one in labels:
            one[:, int(torch.randint(shortest, 33, (1,))) :] = -100
        counts = [int(one.ne(-100).sum()) for one in labels]
        optimizer.zero_grad()
        for one, num in zip(labels, counts, strict=True):
            outputs = model(torch.randn(4, 32, 6))
            share_of((outputs.transpose(1, 2), one), num, sum(counts)).backward()
        optimizer.step()


@healthy
def tokens_weigh_alike_by_a_factor() -> None:
    tokens(lambda pair, num, of: functional.cross_entropy(*pair) * num / of)


@healthy
def tokens_are_summed_and_divided() -> None:
    tokens(lambda pair, _, of: functional.cross_entropy(*pair, reduction="sum") / of)


@healthy
def tokens_of_nearly_equal_texts() -> None:
    tokens(lambda pair, *_: functional.cross_entropy(*pair) / 4, shortest=24)


@healthy
def two_heads_of_unlike_numbers_of_targets() -> None:
    model = nn.Linear(6, 12)
    optimizer = sgd(model)
    for _ in range(UPDATES):
        optimizer.zero_grad()
        for rows in (8, 64):
            target = torch.randint(0, 12, (rows,))
            functional.cross_entropy(model(torch.randn(rows, 6)), target).backward()
        optimizer.step()


@faulty
def means_of_unlike_texts_are_equals() -> None:
    tokens(lambda pair, *_: functional.cross_entropy(*pair) / 4)


# -- what evaluations keep


class Wide(nn.Module):
    """Its outputs are large in evaluation mode; nothing ever touches the memory."""

    def __init__(self, elements: int = 8 << 20) -> None:
        super().__init__()
        self.inner = small(dropout=0.2)
        self.elements = elements

    def forward(self, x: Any) -> Any:
        made = self.inner(x)
        return made if self.training else {"logits": made.new_empty(self.elements), "seen": made}


def evaluates(
    keep: Callable[[Any], Any], *, model: nn.Module | None = None, seen: nn.Module | None = None
) -> None:
    model = Wide() if model is None else model
    optimizer = sgd(model)
    for number in range(UPDATES):
        update(optimizer, loss_of(model))
        if number % 20 == 19:
            model.eval()
            with torch.no_grad():
                kept = [keep((model if seen is None else seen)(batch()[0])) for _ in range(12)]
            assert kept
            model.train()


@healthy
def keeps_a_number_of_each_output() -> None:
    evaluates(lambda out: out["logits"][:1].clone())


@healthy
def keeps_the_losses_of_an_evaluation() -> None:
    evaluates(lambda out: functional.mse_loss(out["seen"], torch.ones(8, 1)))


@healthy
def keeps_small_logits() -> None:
    evaluates(lambda out: out, model=Wide(80))


@healthy
def keeps_what_a_frozen_model_returns() -> None:
    evaluates(lambda out: out, seen=Wide().eval())


@healthy
def evaluates_on_batches_that_it_has() -> None:
    class Passing(Wide):
        def forward(self, x: Any) -> Any:
            return super().forward(x) if self.training else (self.inner(x[:, :6]), x)

    batches = [torch.empty(8, 1 << 20) for _ in range(12)]
    model = Passing()
    optimizer = sgd(model)
    for _ in range(UPDATES):
        update(optimizer, loss_of(model))
    model.eval()
    with torch.no_grad():
        seen = [model(one)[0].mean() for one in batches]
    assert seen


@faulty
def keeps_every_output() -> None:
    evaluates(lambda out: out["logits"])


@faulty
def keeps_a_view_of_every_output() -> None:
    evaluates(lambda out: out["logits"][:1])


# -- losses of two shapes


@healthy
def pairwise_distances_on_purpose() -> None:
    model = nn.Linear(6, 1)
    optimizer = sgd(model)
    for _ in range(UPDATES):
        x, y = batch()
        score = model(x).squeeze(1)
        apart = (score[:, None] - score[None, :] - (y - y.T)).pow(2).mean()
        quantiles = functional.smooth_l1_loss(score[:, None], y.T.expand(8, 8))
        centers = (score.unsqueeze(1) - torch.linspace(-1, 1, 8)).abs().mean()
        update(optimizer, apart + quantiles + centers)


@healthy
def one_target_for_all() -> None:
    model = nn.Linear(6, 1)
    optimizer = sgd(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(UPDATES):
            scores = model(batch()[0])
            loss = functional.mse_loss(scores, torch.ones(1))
            update(optimizer, loss + (scores - torch.zeros(8, 1)).abs().mean())


def broadcasts(compare: Callable[[Any, Any], Any]) -> None:
    model = nn.Linear(6, 1)
    optimizer = sgd(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(UPDATES):
            x, y = batch(32)
            update(optimizer, compare(model(x), y.squeeze(1)))


@faulty
def mean_square_of_two_shapes() -> None:
    broadcasts(functional.mse_loss)


@faulty
def absolute_error_of_two_shapes() -> None:
    broadcasts(functional.l1_loss)


@faulty
def huber_of_two_shapes_turned() -> None:
    broadcasts(lambda seen, y: nn.HuberLoss()(seen.flatten(), y.view(-1, 1)))


@faulty
def by_hand_of_two_shapes() -> None:
    broadcasts(lambda seen, y: ((seen - y) ** 2).mean())


# -- labels


def language(labels_of: Callable[[Any], Any], *, tail: bool = False) -> None:
    embed, head = nn.Embedding(50, 12), nn.Linear(12, 50)
    optimizer = sgd(embed, head)
    for _ in range(2 * UPDATES):
        ids = torch.randint(1, 50, (4, 24))
        labels = labels_of(ids)
        logits = head(embed(ids))
        if tail:
            loss = functional.cross_entropy(logits.transpose(1, 2), labels)
        else:
            loss = functional.cross_entropy(logits.view(-1, 50), labels.view(-1))
        if torch.isfinite(loss):
            update(optimizer, loss)


def without(ids: Any, rows: int) -> Any:
    labels = torch.full_like(ids, -100)
    labels[rows:, 12:] = ids[rows:, 12:]
    return labels


@healthy
def prompts_are_masked() -> None:
    language(lambda ids: without(ids, 0))


@healthy
def few_tokens_are_masked_words() -> None:
    language(lambda ids: torch.where(torch.rand(ids.shape) < 0.15, ids, -100))


@healthy
def one_label_of_many_is_missing() -> None:
    model = small(outputs=3)
    optimizer = sgd(model)
    for _ in range(UPDATES):
        labels = torch.randint(0, 3, (8,))
        labels[::2] = -100
        update(optimizer, functional.cross_entropy(model(batch()[0]), labels))


@faulty
def answers_are_masked_away() -> None:
    language(lambda ids: without(ids, 3))


@faulty
def answers_are_masked_away_by_class() -> None:
    language(lambda ids: without(ids, 2), tail=True)


# -- workers


class Crops(Dataset[Any]):
    def __init__(self, *, seeds: str = "once") -> None:
        self.rng = np.random.default_rng(7)
        self.seeds = seeds
        self.epoch = 0

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        if self.seeds == "each":
            self.rng = np.random.default_rng(index)
        shift = self.shift() if self.seeds == "never" else self.rng.normal()
        return torch.full((6,), float(index)) * 0.01 + shift, torch.zeros(1)

    def shift(self) -> float:
        return 0.0


class SharedCrops(Crops):
    def shift(self) -> float:
        return float(np.random.normal())


class Curriculum(Crops):
    def shift(self) -> float:
        return 0.1 * self.epoch


class Stream(IterableDataset[Any]):
    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.rng = np.random.default_rng(3)

    def __iter__(self) -> Any:
        info = get_worker_info()
        part = (info.id, info.num_workers) if "parts" in self.kind else (0, 1)
        order = self.rng.permutation(64) if "shuffled" in self.kind else range(64)
        for index in order[part[0] :: part[1]]:
            value = 1.0 if self.kind == "constant" else float(index)
            yield torch.full((6,), value * 0.01), torch.zeros(1)


def seed_worker(number: int) -> None:
    get_worker_info().dataset.rng = np.random.default_rng(get_worker_info().seed)


def seed_worker_alike(number: int) -> None:
    np.random.seed(7 + number)


def epochs(data: Any, *, num: int = 3, sets: bool = False, **options: Any) -> None:
    model = nn.Linear(6, 1)
    optimizer = sgd(model)
    loader = DataLoader(data, batch_size=4, num_workers=2, **options)
    for epoch in range(num):
        if sets:
            data.epoch = epoch
        for x, y in loader:
            update(optimizer, functional.mse_loss(model(x), y))


@healthy
def workers_seed_their_generator() -> None:
    epochs(Crops(), shuffle=True, worker_init_fn=seed_worker)


@healthy
def workers_draw_from_the_shared_generator() -> None:
    epochs(SharedCrops(seeds="never"), shuffle=True)


@healthy
def persistent_workers_are_seeded_once() -> None:
    options: Any = {"worker_init_fn": seed_worker_alike, "persistent_workers": True}
    epochs(SharedCrops(seeds="never"), shuffle=True, **options)


@faulty
def workers_seed_alike_in_each_epoch() -> None:
    epochs(SharedCrops(seeds="never"), shuffle=True, worker_init_fn=seed_worker_alike)


@healthy
def each_sample_has_a_seed() -> None:
    epochs(Crops(seeds="each"), shuffle=True)


@healthy
def a_generator_that_nobody_uses() -> None:
    epochs(Crops(seeds="never"), sets=True)


@healthy
def the_epoch_is_of_no_use_to_the_workers() -> None:
    epochs(Crops(seeds="never"), sets=True, persistent_workers=True)


@healthy
def the_epoch_reaches_workers_that_start_again() -> None:
    epochs(Curriculum(seeds="never"), sets=True)


@healthy
def workers_share_a_shuffled_iterable() -> None:
    epochs(Stream("shuffled parts"))


@healthy
def workers_share_an_iterable() -> None:
    epochs(Stream("parts"))


@healthy
def an_iterable_of_one_constant() -> None:
    epochs(Stream("constant"))


def distributed_epochs(
    rows: Any, *, sets: bool = False, num: int = 3, evaluates: bool = False, **options: Any
) -> None:
    """Epochs of one rank's sampler; a process group is not needed."""
    model = nn.Linear(6, 1)
    optimizer = sgd(model)
    sampler = DistributedSampler(rows, 2, 0, **options)
    loader = DataLoader(rows, batch_size=4, sampler=None if evaluates else sampler)
    held_out = DataLoader(Crops(seeds="never"), batch_size=4, sampler=sampler)
    for epoch in range(num):
        if sets:
            sampler.set_epoch(epoch)
        for x, y in loader:
            update(optimizer, functional.mse_loss(model(x), y))
        if evaluates:
            with torch.no_grad():
                for x, _ in held_out:
                    model(x)


@healthy
def the_sampler_is_told_each_epoch() -> None:
    distributed_epochs(Crops(seeds="never"), sets=True)


@healthy
def the_sampler_does_not_shuffle() -> None:
    distributed_epochs(Crops(seeds="never"), shuffle=False)


@healthy
def a_single_epoch_in_any_order() -> None:
    distributed_epochs(Crops(seeds="never"), num=1)


@healthy
def evaluations_have_the_same_order() -> None:
    distributed_epochs(Crops(seeds="never"), evaluates=True)


@faulty
def the_sampler_is_never_told_the_epoch() -> None:
    distributed_epochs(Crops(seeds="never"))


@faulty
def workers_draw_the_same() -> None:
    epochs(Crops(), shuffle=True)


@faulty
def each_worker_yields_everything() -> None:
    epochs(Stream("whole"))


@faulty
def the_epoch_does_not_reach_the_workers() -> None:
    epochs(Curriculum(seeds="never"), sets=True, persistent_workers=True)


def new_run(store: Path) -> Path:
    """The folder of a run that is to come."""
    run = create_run(store, started_unix_s=time.time())
    record = describe_run(run.run_id, ("python", __file__), environment={}, started_unix_s=1e9)
    write_value(run, "command.json", replace(record, exit_code=0, cwd=str(HERE)))
    return run.folder


def observe(act: Act, store: Path) -> list[dict[str, Any]]:
    """What the sense checks find in one training."""
    folder = new_run(store)
    torch.manual_seed(0)
    visit = late.Visit(str(folder))
    visit.begin()
    act()
    visit.end()
    return found_in(folder, act.__name__)


def found_in(folder: Path, name: str) -> list[dict[str, Any]]:
    """What the sense checks find in the record of a training."""
    write_source(folder, cwd=str(HERE))
    measurement = measure(read_records(folder))
    codes = {note.code for note in measurement.notes}
    assert "guest_failures" not in codes, (name, measurement.notes)
    found = [rule(measurement) for rule in dict.fromkeys(row.rule for row in ASKED)]
    return [
        {
            "cause": one.cause,
            "severity": one.severity.value,
            "line": one.where_text,
            "names": dict(one.names or {}),
            "evidence": {item.name: item.value for item in one.evidence},
        }
        for one in found
        if one is not None
    ]


class Plain(late.Visiting):
    """Only what the sense checks need: probes of memory and work would take most of the time."""

    looks_at_memory = looks_at_batches = looks_at_epochs = False

    def new_plan(self, context: Any) -> None: ...


def main(store: str, out: str, *names: str) -> None:
    torch.set_num_threads(1)
    late.Visiting = Plain
    acts = [act for act in (*HEALTHY, *FAULTY) if not names or act.__name__ in names]
    found = {act.__name__: observe(act, Path(store)) for act in acts}
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
