"""Backward calls compute only the gradients that an update uses.

`gradient_needs.py` watches, for each line that calls backward, which gradients are dropped before
their optimizer steps: those of the discriminator in the generator's turn, of the whole generator
where the fake batch was not detached, of a critic in the actor's turn. They are then left out
there; all others keep their bits. Should one be wanted after all, the training says so and stops
leaving anything out.

Source: `inputs` of https://docs.pytorch.org/docs/stable/generated/torch.Tensor.backward.html; the
usual edit is to detach the fake batch, and to freeze the other network for its turn.
"""

from __future__ import annotations

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from .gradient_needs import GradientNeeds

KNOWN: list[GradientNeeds] = []
"""What was seen stays while the lever is off for some steps."""


def applies(facts: Facts) -> str | None:
    """It applies where several optimizers alone read gradients, in one process."""
    if facts.world_size > 1:
        return "Several ranks exchange gradients before they are used."
    if facts.optimizers is None or facts.reads_gradients is None:
        return "Which optimizers there are, and what reads gradients, was not observed."
    if len(facts.optimizers) < 2:
        return "One optimizer updates all weights that get gradients."
    if facts.uses_scaler or facts.reads_gradients:
        return "Something besides the optimizers reads gradients, such as clipping or a scaler."
    if facts.zeroes_gradients:
        return "The script fills gradients with zeros, so it cannot be seen which ones it drops."
    if "reentrant" in (facts.checkpoint_ways or ()):
        return "Reentrant checkpoints compute all gradients, or none."
    return None


def apply(settings: Settings, session: Session) -> Undo:
    """Watch the first turns of each line, then leave out what it drops."""
    if not KNOWN:
        KNOWN.append(GradientNeeds(session.torch))
    (needs,) = KNOWN
    needs.begin()
    undos = (
        session.for_each_optimizer(needs.adopt),
        session.wrap_backward(needs.run_backward),
        session.before_update(needs.before_update),
    )

    def undo() -> None:
        for take_back in undos:
            take_back()

    return undo


LEVER = Lever(
    name="needed_gradients",
    title="Compute only the gradients that an update uses.",
    relieves=("COMPUTE_BOUND",),
    phases=("backward",),
    preserves=Preserves.EXACT,
    when=(
        "Several optimizers train parts of a network in turn, as those of a GAN or of an actor and "
        "its critic, and nothing but them reads gradients, which are dropped and not filled with "
        "zeros."
    ),
    applies=applies,
    moment=Moment.LIVE,
    judged_by_cpu_time=True,
    judged_beside_others=True,
    apply=apply,
    edit=lambda settings: (
        "loss_d = criterion(D(fake.detach()), zeros)  # no gradient of G in the turn of D\n"
        "\n"
        "for weight in D.parameters():\n"
        "    weight.requires_grad_(False)  # in the turn of G; True again after it"
    ),
    costs=(
        "Hooks on what is left out are not called. A script that first uses a gradient after it "
        "dropped it four times and more gets one update without it, and a message."
    ),
    source="https://docs.pytorch.org/docs/stable/generated/torch.Tensor.backward.html",
)
