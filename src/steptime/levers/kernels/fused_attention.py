"""Attention that is written out in single operators, computed by torch's fused kernel.

softmax(q @ k^T * scale + mask) @ v as one operator never holds all weights in memory and skips what
a causal mask hides. The places are found in the first call of each model: classes whose `forward`
does this. Inside these alone, a product is computed only when it is known what for, so weights that
are wanted for anything else (returned, kept, dropped at random) are computed as they are written.

Source: Dao et al., FlashAttention (2022); torch.nn.functional.scaled_dot_product_attention. To
find the places and to compute late is our own.
"""

from __future__ import annotations

import functools
import weakref

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from ..tools.owners import Known, act_where_found
from .attention_finder import Fuser, find_attention, fuse_in

known: Known = weakref.WeakKeyDictionary()
fuser_of = functools.cache(Fuser)

REASONS = {
    "dropout": "its weights are dropped at random, for which this device has no fused kernel.",
    "used": "its weights are used for something else too, so they must be computed.",
    "weak_mask": "one mask may lift what another one hides.",
    "hidden_row": "a mask hides whole rows, of which the fused kernel makes something else.",
    "no_kernel": "torch has no fused kernel for its shapes and masks.",
    "differs": "on the training's own numbers the fused kernel gave others.",
    "dtype": "its weights and values differ in dtype.",
    "modes": "gradients or autocast are switched between its parts.",
    "shapes": "the shapes of weights and values are not those of attention.",
}
"""Why attention is left as it is, by the word with which it is counted."""


def applies(facts: Facts) -> str | None:
    """Return why it does not apply, if so."""
    if facts.device != "cpu":
        return f"It has not been tested on {facts.device}."
    if facts.uses_compile:
        return "The script compiles its model, and the compiler looks for attention itself."
    if facts.plain_attention is None or facts.plain_attention:
        return None
    for word in facts.kept_attention or ():
        if word in REASONS:
            return f"Attention is written out, but {REASONS[word]}"
    return "No attention that is written out in single operators was seen."


def apply(settings: Settings, session: Session) -> Undo:
    """Find attention in the first call of each model, and fuse it from the second call on."""
    torch, fuser = session.torch, fuser_of(session.torch)
    return act_where_found(
        session,
        known,
        lambda model, call: find_attention(torch, fuser, call),
        lambda owner: fuse_in(torch, fuser, owner),
    )


LEVER = Lever(
    name="fused_attention",
    title="Compute attention that is written out in single operators by one fused kernel.",
    relieves=("COMPUTE_BOUND", "MEMORY_BANDWIDTH_BOUND"),
    phases=("forward", "forward_and_loss", "backward"),
    preserves=Preserves.NUMERIC,
    when=(
        "A model writes out softmax(q @ k^T * scale, masked) @ v by `matmul`, `bmm` or `einsum`, "
        "drops no weights at random and uses them for nothing else. The fused kernel is used where "
        "it agrees with the script's own operators on the run's own numbers, gradients included."
    ),
    applies=applies,
    moment=Moment.LIVE,
    judged_by_cpu_time=True,
    apply=apply,
    edit=lambda settings: (
        "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # for a causal mask\n"
        "y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask == 1)  # True: is seen\n"
        "# in place of softmax(q @ k.transpose(-2, -1) / sqrt(q.size(-1)), masked) @ v"
    ),
    costs=(
        "Functions inside such modules cost some microseconds more each, which short sequences do "
        "not earn back. Gradients of gradients through attention raise an error."
    ),
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
)
