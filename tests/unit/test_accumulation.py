"""What is said, and above all not said, of loops that accumulate gradients."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from steptime.measure.source.accumulation import find_suspicions

HEAD = """\
import torch
from torch import nn
import torch.nn.functional as F
criterion = nn.CrossEntropyLoss()
"""


def found_in(text: str) -> list[tuple[str, str]]:
    """Code and line of text of each suspicion in a script with the usual imports."""
    source = HEAD + dedent(text)
    lines = source.splitlines()
    return [(code, lines[line - 1].strip()) for code, line in find_suspicions(ast.parse(source))]


def loop(*lines: str, update: str = "if (i + 1) % accum == 0:") -> str:
    """A loop with these lines in it, an update under a condition, and nothing else."""
    body = "\n".join(f"    {line}" for line in lines)
    step = f"    {update}\n        optimizer.step()\n        optimizer.zero_grad()\n"
    return f"for i, (x, y) in enumerate(loader):\n{body}\n{step}"


LOSS = "loss = criterion(model(x), y)"
UNDIVIDED = ("accumulation_loss", "loss.backward()")


# -- a mean loss that nothing divides


@pytest.mark.parametrize(
    "lines",
    [
        (LOSS, "loss.backward()"),
        ("out = model(x)", "loss = F.cross_entropy(out, y)", "loss.backward()"),
        ("loss = F.cross_entropy(model(x), y, reduction='mean')", "loss.backward()"),
        ("loss = nn.functional.mse_loss(model(x), y)", "loss.backward()"),
        ("loss = model(x).sub(y).pow(2).sum(1).mean()", "loss.backward()"),
        ("loss = ((model(x) - y) ** 2).mean()", "loss.backward()"),
        ("outputs = model(x, labels=y)", "loss = outputs.loss", "loss.backward()"),
        ("loss = model(x, labels=y).loss", "loss.backward()"),
        ("loss = self.model(x, labels=y)['loss']", "loss.backward()"),
        ("logits, loss = model(x, y)", "loss.backward()"),
        ("with torch.autocast('cpu'):", f"    {LOSS}", "loss.backward()"),
        (LOSS, "loss = loss + F.mse_loss(x, y)", "loss.backward()"),
        (LOSS, "total += loss.item() * x.size(0)", "loss.backward()"),
        ("with model.no_sync():", f"    {LOSS}", "    loss.backward()"),
    ],
)
def test_a_mean_loss_that_nothing_divides_is_suspected(lines: tuple[str, ...]) -> None:
    assert found_in(loop(*lines)) == [UNDIVIDED]


@pytest.mark.parametrize(
    "update",
    [
        "if i % 4 == 3:",
        "if (i + 1) % args.accumulation_steps == 0 or i + 1 == len(loader):",
        "if not (i + 1) % accum:",
    ],
)
def test_each_way_to_count_micro_batches_is_known(update: str) -> None:
    assert found_in(loop(LOSS, "loss.backward()", update=update)) == [UNDIVIDED]


def test_a_counter_of_its_own_counts_too() -> None:
    lines = (LOSS, "loss.backward()", "count += 1")
    assert found_in(loop(*lines, update="if count == accum:")) == [UNDIVIDED]
    assert found_in(loop(*lines, update="if count == 4 and ready:")) == []


def test_a_scaler_does_not_divide() -> None:
    line = "scaler.scale(loss).backward()"
    assert found_in(loop(LOSS, line)) == [("accumulation_loss", line)]


def test_a_scaler_that_steps_is_an_update() -> None:
    text = loop(LOSS, "scaler.scale(loss).backward()")
    text = text.replace("optimizer.step()", "scaler.step(optimizer)")
    assert [code for code, _ in found_in(text)] == ["accumulation_loss"]


def test_an_inner_loop_of_micro_batches_is_known_by_its_name() -> None:
    text = """\
    for step in range(100):
        optimizer.zero_grad()
        for micro_step in range(gradient_accumulation_steps):
            logits, loss = model(x, y)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    """
    assert found_in(text) == [UNDIVIDED]


def test_a_method_of_a_trainer_is_read_too() -> None:
    text = """\
    class Trainer:
        def __init__(self):
            self.criterion = nn.MSELoss().to(device)

        def train_epoch(self):
            for i, batch in enumerate(self.loader):
                loss = self.criterion(self.model(batch), batch)
                loss.backward()
                if (i + 1) % self.accum == 0:
                    self.optimizer.step()
                    self.optimizer.zero_grad()
    """
    assert found_in(text.replace("criterion", "loss_function")) == [UNDIVIDED]


def test_accelerate_divides_only_where_it_knows_the_number() -> None:
    line = "accelerator.backward(loss)"
    text = loop(LOSS, line)
    assert found_in(text) == []
    assert found_in("accelerator = Accelerator()\n" + text) == [("accumulation_loss", line)]
    for told in ("gradient_accumulation_steps=4", "**settings"):
        assert found_in(f"accelerator = Accelerator({told})\n" + text) == []


# -- losses that are divided, multiplied, summed, or not understood


@pytest.mark.parametrize(
    "lines",
    [
        (LOSS, "loss = loss / accum", "loss.backward()"),
        (LOSS, "loss /= accum", "loss.backward()"),
        (LOSS, "loss *= 0.25", "loss.backward()"),
        (LOSS, "(loss / accum).backward()"),
        (LOSS, "(loss * scale).backward()"),
        (LOSS, "loss = loss.div(accum)", "loss.backward()"),
        (LOSS, "loss.div_(accum)", "loss.backward()"),
        (LOSS, "loss = torch.div(loss, accum)", "loss.backward()"),
        (LOSS, "scaler.scale(loss / accum).backward()"),
        (LOSS, "if accum > 1:", "    loss = loss / accum", "loss.backward()"),
        (LOSS, "loss = loss / accum if accum > 1 else loss", "loss.backward()"),
        (LOSS, "small = loss / 4", "small.backward()"),
        (LOSS, "loss = scaled(loss, accum)", "loss.backward()"),
        ("loss = criterion(model(x), y) * weight", "loss.backward()"),
        ("loss = criterion(model(x), y, accum)", "loss.backward()"),
        ("loss = F.cross_entropy(model(x), y, reduction='sum')", "loss.backward()"),
        ("loss = F.cross_entropy(model(x), y, reduction=how)", "loss.backward()"),
        ("loss = F.cross_entropy(model(x), y, size_average=False)", "loss.backward()"),
        ("loss = (model(x) - y).pow(2).sum()", "loss.backward()"),
        ("each = F.mse_loss(model(x), y) * w", "loss = each.mean()", "loss.backward()"),
        ("loss = (F.mse_loss(model(x), y) / accum).mean()", "loss.backward()"),
        ("loss = compute_loss(model(x), y)", "loss.backward()"),
        ("loss = self.training_step(x)", "loss.backward()"),
        ("loss_dict = model(x, y)", "loss = sum(loss_dict.values())", "loss.backward()"),
        ("loss = (-log_prob * reward).sum()", "loss.backward()"),
        (LOSS, "loss.backward(gradient=weight)"),
        (LOSS, "for p in model.parameters():", "    p.grad /= accum", "loss.backward()"),
        (LOSS, "loss.backward()", "x.grad.div_(accum)"),
        (LOSS, "loss.backward()", "p.register_hook(halve)"),
        ("for head in heads:", "    loss = criterion(head(x), y)", "    loss.backward()"),
        ("if ready:", f"    {LOSS}", "    loss.backward()"),
    ],
)
def test_what_is_scaled_or_not_understood_is_not_suspected(lines: tuple[str, ...]) -> None:
    assert found_in(loop(*lines)) == []


@pytest.mark.parametrize(
    "head",
    [
        "criterion = nn.CrossEntropyLoss(reduction='sum')\n",
        "criterion = DiceLoss()\n",
        "lr = base_lr / accum\n",
        "def criterion(a, b):\n    return (a - b).abs().max() / accum\n",
    ],
)
def test_what_stands_elsewhere_may_explain_it(head: str) -> None:
    text = loop(LOSS, "loss.backward()")
    if head.startswith("def"):
        assert found_in(head + text) == []
    else:
        assert found_in(text + head) == []


def test_counting_the_updates_of_an_epoch_explains_nothing() -> None:
    text = "updates = len(loader) / accum\n" + loop(LOSS, "loss.backward()")
    assert found_in(text) == [UNDIVIDED]


# -- gradients set to zero in each micro-batch

ZEROED = ("accumulation_zeroed", "optimizer.zero_grad()")


@pytest.mark.parametrize(
    "text",
    [
        """\
        for i, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = criterion(model(x), y) / accum
            loss.backward()
            if (i + 1) % accum == 0:
                optimizer.step()
        """,
        """\
        for i, (x, y) in enumerate(loader):
            loss = compute_loss(x, y)
            loss.backward()
            if (i + 1) % accum == 0:
                optimizer.step()
                scheduler.step()
            scheduler.step()
            optimizer.zero_grad()
        """,
        """\
        for step in range(100):
            for micro_step in range(4):
                optimizer.zero_grad()
                loss = compute_loss(x, y)
                loss.backward()
            optimizer.step()
        """,
    ],
)
def test_zeroing_in_each_micro_batch_is_suspected(text: str) -> None:
    assert found_in(text) == [ZEROED]


@pytest.mark.parametrize(
    "text",
    [
        # Sets to zero where it updates.
        """\
        for i, (x, y) in enumerate(loader):
            if i % accum == 0:
                optimizer.zero_grad()
            compute_loss(x, y).backward()
            if (i + 1) % accum == 0:
                optimizer.step()
        """,
        # Clears what a failed backward left.
        """\
        for i, (x, y) in enumerate(loader):
            try:
                compute_loss(x, y).backward()
            except RuntimeError:
                optimizer.zero_grad()
                continue
            if (i + 1) % accum == 0:
                optimizer.step()
                optimizer.zero_grad()
        """,
        # Something else may update in each round.
        """\
        for i, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            compute_loss(x, y).backward()
            adam.step()
            if i % 4 == 0:
                slow_optimizer.step()
        """,
    ],
)
def test_zeroing_with_a_reason_is_not_suspected(text: str) -> None:
    assert found_in(text) == []


# -- loops of other kinds

OTHERS = {
    "textbook": """\
        for epoch in range(3):
            for x, y in loader:
                optimizer.zero_grad()
                loss = criterion(model(x), y)
                loss.backward()
                optimizer.step()
                if epoch % 2 == 0:
                    print(loss.item())
            scheduler.step()
        """,
    "gan": """\
        for i, (real, _) in enumerate(loader):
            netD.zero_grad()
            errD = criterion(netD(real), ones)
            errD.backward()
            optimizerD.step()
            if i % n_critic == 0:
                netG.zero_grad()
                errG = criterion(netD(netG(z)), ones)
                errG.backward()
                optimizerG.step()
        """,
    "wgan with its critic updated by a helper": """\
        for i, (real, _) in enumerate(loader):
            optimizerD.zero_grad()
            lossD = criterion(netD(real), ones)
            lossD.backward()
            update_critic()
            if i % n_critic == 0:
                lossG = criterion(netD(netG(z)), ones)
                lossG.backward()
                optimizerG.step()
        """,
    "inner critic loop": """\
        for step in range(1000):
            for _ in range(n_critic):
                d_optimizer.zero_grad()
                d_loss = F.mse_loss(critic(x), y)
                d_loss.backward()
                d_optimizer.step()
            g_optimizer.zero_grad()
            g_loss = F.mse_loss(critic(generator(z)), y)
            g_loss.backward()
            g_optimizer.step()
        """,
    "losses of several tasks added up": """\
        for step in range(1000):
            optimizer.zero_grad()
            for task in range(num_tasks):
                loss = F.mse_loss(model(x, task), y)
                loss.backward()
            optimizer.step()
        """,
    "two optimizers in turn": """\
        for i, (x, y) in enumerate(loader):
            loss = criterion(model(x), y)
            loss.backward()
            if i % 2 == 0:
                optimizer_a.step()
            else:
                optimizer_b.step()
        """,
    "dqn": """\
        for step in range(10000):
            state = env.step(action)
            if step % train_frequency == 0:
                loss = F.mse_loss(target, value)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            if step % target_frequency == 0:
                target_network.load_state_dict(q_network.state_dict())
        """,
    "td3": """\
        for step in range(10000):
            critic_loss = F.mse_loss(q1, target) + F.mse_loss(q2, target)
            q_optimizer.zero_grad()
            critic_loss.backward()
            q_optimizer.step()
            if step % policy_frequency == 0:
                actor_loss = -critic(actor(state)).mean()
                actor_optimizer.zero_grad()
                actor_loss.backward()
                actor_optimizer.step()
        """,
    "reinforce in batches of episodes": """\
        for episode in range(1000):
            loss = torch.cat(losses).sum()
            loss.backward()
            if episode % batch_size == 0:
                optimizer.step()
                optimizer.zero_grad()
        """,
    "lbfgs": """\
        for i in range(100):
            def closure():
                optimizer.zero_grad()
                loss = F.mse_loss(model(x), y)
                loss.backward()
                return loss
            if i % 2 == 0:
                optimizer.step(closure)
        """,
    "nanogpt": """\
        while True:
            for micro_step in range(gradient_accumulation_steps):
                with ctx:
                    logits, loss = model(X, Y)
                    loss = loss / gradient_accumulation_steps
                X, Y = get_batch('train')
                scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
        """,
    "a trainer of Hugging Face": """\
        for step, batch in enumerate(train_dataloader):
            outputs = model(**batch)
            loss = outputs.loss
            total_loss += loss.detach().float()
            loss = loss / args.gradient_accumulation_steps
            accelerator.backward(loss)
            last = step == len(train_dataloader) - 1
            if step % args.gradient_accumulation_steps == 0 or last:
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad()
        """,
    "accelerate that accumulates": """\
        accelerator = Accelerator(gradient_accumulation_steps=4)
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        """,
    "an engine that divides by itself": """\
        for step, batch in enumerate(loader):
            loss = model_engine(batch)
            model_engine.backward(loss)
            model_engine.step()
            if step % 10 == 0:
                optimizer.step()
        """,
    "a guard that goes on": """\
        for i, (x, y) in enumerate(loader):
            loss = criterion(model(x), y)
            loss.backward()
            if (i + 1) % accum:
                continue
            optimizer.step()
        """,
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_loop_of_another_kind_is_not_suspected(name: str) -> None:
    assert found_in(OTHERS[name]) == []


def test_a_match_is_a_condition() -> None:
    text = """\
    for i, (x, y) in enumerate(loader):
        match kind:
            case 1:
                compute_loss(x, y).backward()
        if i % 4 == 0:
            optimizer.step()
        optimizer.zero_grad()
    """
    assert found_in(text) == []
