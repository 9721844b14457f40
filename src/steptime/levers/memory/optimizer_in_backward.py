"""Each weight is updated as soon as its gradient is complete, and the gradient is freed at once.

The gradients of all weights never lie in memory together. It is the optimizer's own step, called
for one weight at a time, so each number stays. The script's own call of `step` then finds no
gradient and does nothing. That needs an optimizer that treats each weight by itself, one backward
for each update, and nothing else that reads gradients: no clipping, no scaler, no accumulation, no
exchange between ranks. A trial looks for such readers in the first updates.

Source: Lv et al., Full Parameter Fine-tuning with Limited Resources (LOMO, 2023); PyTorch tutorial,
"How to save memory by fusing the optimizer step into the backward pass".
"""

from __future__ import annotations

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from ..tools.memory_room import MIN_MEMORY_FRACTION, why_memory_suffices
from .early_steps import BY_WEIGHT, EarlySteps


def applies(facts: Facts) -> str | None:
    """It applies where one optimizer is the only reader of the gradients of one backward."""
    if facts.world_size > 1:
        return "Several ranks exchange gradients before they are used."
    if facts.uses_compile:
        return "The script compiles its model, whose gradients then come all at once."
    if facts.uses_scaler:
        return "A gradient scaler reads all gradients before the update."
    if facts.zeroes_gradients:
        return "The script fills gradients with zeros, which lie there through the forward."
    if "reentrant" in (facts.checkpoint_ways or ()):
        return "Reentrant checkpoints may complete a gradient in several parts."
    return why_not_alone(facts) or why_memory_suffices(facts)


def why_not_alone(facts: Facts) -> str | None:
    """Return who else needs gradients between the backward and the update, as a sentence."""
    if facts.optimizers is None:
        return "Which optimizers the script uses was not observed."
    if len(facts.optimizers) != 1 or facts.optimizers[0].name not in BY_WEIGHT:
        return "It takes one optimizer of torch that updates each weight by itself."
    if facts.backwards_per_update is None:
        return "It was not observed that each update has equally many backward passes."
    if facts.backwards_per_update != 1:
        return "Gradients of several backward passes add up before an update."
    if facts.reads_gradients is None or facts.changes_rates_late is None:
        return "Who reads gradients before the update was not observed."
    if facts.reads_gradients:
        return "Something besides the optimizer reads or sets gradients, such as clipping."
    if facts.changes_rates_late:
        return "The script changes learning rates between the backward and the update."
    return None


def frees(facts: Facts, settings: Settings) -> int | None:
    """Return the gradients that are held at the fullest moment of a step."""
    return None if facts.peak_bytes is None else facts.peak_bytes.get("gradients", 0)


def apply(settings: Settings, session: Session) -> Undo:
    """Update weights inside each backward."""
    early = EarlySteps(session.torch, session.count)
    undos = (
        session.for_each_optimizer(early.adopt),
        session.wrap_backward(early.run_backward),
        session.before_update(early.end),
    )

    def undo() -> None:
        for take_back in undos:
            take_back()

    return undo


LEVER = Lever(
    name="optimizer_in_backward",
    title="Update each weight as soon as its gradient is complete, and free the gradient.",
    relieves=("MEMORY_CAPACITY_BOUND",),
    phases=("backward", "optimizer"),
    preserves=Preserves.EXACT,
    when=f"The training holds {MIN_MEMORY_FRACTION:.0%} of the memory that it may have, and one "
    "optimizer of torch alone reads the gradients of one backward in one process.",
    applies=applies,
    moment=Moment.LIVE,
    judged_by_cpu_time=True,
    frees=frees,
    apply=apply,
    edit=lambda settings: (
        "for weight in model.parameters():  # one optimizer for each weight\n"
        "    own = torch.optim.AdamW([weight], lr=lr)  # your own class and rates\n"
        "    def update(weight, own=own):\n"
        "        own.step()\n"
        "        own.zero_grad()\n"
        "    weight.register_post_accumulate_grad_hook(update)"
    ),
    costs="The optimizer starts once for each weight, which small weights feel. A script that "
    "reads gradients later on, to log them, finds none.",
    source="https://docs.pytorch.org/tutorials/intermediate/optimizer_step_in_backward_tutorial.html",
)
