"""Adam's two states a weight are kept in fewer bits (torchao), or factored into rows and columns.

The updates become others, so this changes the training: nothing tries it unless such changes are
allowed. The optimizers are torchao's and torch's own; none is written here. The class that the
script makes its optimizer of is replaced before the script begins, with the script's own rates.

Source: Dettmers et al., 8-bit Optimizers via Block-wise Quantization (2021); Li et al., Memory
Efficient Optimizers with 4-bit States (2023); Shazeer and Stern, Adafactor (2018); torchao.optim.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from ..tools.memory_room import why_memory_suffices
from ..tools.versions import is_before

REPLACED = ("Adam", "AdamW")

BYTES = {"8bit": 2 * (1 + 4 / 256), "4bit": 2 * (0.5 + 4 / 128), "Fp8": 2 * (1 + 4 / 256)}
"""Of both states, for each weight: codes, and a float32 scale for each block of torchao's size."""

FACTORED = "adafactor"


def applies(facts: Facts) -> str | None:
    """It applies to trainings by Adam or AdamW in one process that are short of memory."""
    if facts.optimizers is None:
        return "Which optimizers the script uses was not observed."
    if not facts.optimizers or any(one.name not in REPLACED for one in facts.optimizers):
        return "The script has other optimizers than Adam and AdamW of torch."
    if facts.world_size > 1:
        return "Several ranks may share their states, which this has not been tried with."
    if not space(facts):
        return "There is no torchao here, and torch 2.5 is the first with Adafactor."
    return why_memory_suffices(facts)


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return the kinds of states that libraries here have, the mildest change first."""
    kinds = ["8bit", "Fp8", "4bit"] if facts.has_torchao else []
    if facts.device == "cpu" and "Fp8" in kinds:
        kinds.remove("Fp8")  # torchao has it for devices that compute in fp8
    if not is_before(facts.torch_version, (2, 5)):
        kinds.append(FACTORED)
    return tuple({"states": kind} for kind in kinds)


def frees(facts: Facts, settings: Settings) -> int | None:
    """Return what the states take now, less what they would take.

    Factored states of a matrix are one row and one column, which are left out: less than a
    hundredth for matrices of 200 x 200 and more.
    """
    held, num = (facts.held_bytes or {}).get("optimizer"), facts.num_parameters
    if held is None or num is None:
        return None
    per_weight = BYTES.get(str(settings["states"]), 0.0)
    return max(0, held - round(per_weight * num))


def apply(settings: Settings, session: Session) -> Undo | None:
    """Put another class in the place of torch's Adam and AdamW."""
    optim, kind = session.torch.optim, str(settings["states"])
    for name in REPLACED:
        made = make_factored(optim, name) if kind == FACTORED else make_quantized(name, kind)
        setattr(optim, name, made)
        module = import_module(f"torch.optim.{name.lower()}")
        setattr(module, name, made)
    return None


def make_factored(optim: Any, name: str) -> type:
    """Return Adafactor under a name of torch's, made with the arguments of that class."""
    decay = 0.01 if name == "AdamW" else 0.0

    def __init__(  # noqa: N807
        self: Any,
        params: Any,
        lr: Any = 1e-3,
        betas: Any = None,
        eps: float = 1e-8,
        weight_decay: float = decay,
        amsgrad: bool = False,  # noqa: FBT001, FBT002 - as torch has it
        **others: Any,
    ) -> None:
        taken = {key: others[key] for key in ("foreach", "maximize") if others.get(key) is not None}
        optim.Adafactor.__init__(self, params, lr=lr, weight_decay=weight_decay, **taken)

    return named_as_torchs(name, optim.Adafactor, __init__)


def make_quantized(name: str, kind: str) -> type:
    """Return torchao's class under a name of torch's, made with the arguments of that class."""
    theirs = getattr(import_module("torchao.optim"), f"{name}{kind}")
    decay = 0.01 if name == "AdamW" else 0.0

    def __init__(  # noqa: N807
        self: Any,
        params: Any,
        lr: Any = 1e-3,
        betas: Any = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = decay,
        amsgrad: bool = False,  # noqa: FBT001, FBT002 - as torch has it
        **others: Any,
    ) -> None:
        theirs.__init__(self, params, lr, betas, eps, weight_decay, amsgrad)

    return named_as_torchs(name, theirs, __init__)


def named_as_torchs(name: str, theirs: type, init: Any, **others: Any) -> type:
    """Return a class that pickle finds where torch has its own."""
    own = {"__init__": init, "__module__": f"torch.optim.{name.lower()}", **others}
    return type(name, (theirs,), own)


def edit(settings: Settings) -> str:
    """Return the line that does it in the script."""
    kind = settings["states"]
    if kind == FACTORED:
        return "optimizer = torch.optim.Adafactor(model.parameters(), lr=lr)"
    return f"optimizer = torchao.optim.AdamW{kind}(model.parameters(), lr=lr)"


LEVER = Lever(
    name="low_memory_states",
    title="Keep Adam's states in 8 or 4 bits (torchao), or factored (Adafactor).",
    relieves=("MEMORY_CAPACITY_BOUND",),
    phases=("optimizer",),
    preserves=Preserves.NOTHING,
    when="Memory is short, and the script trains by torch's Adam or AdamW in one process. It "
    "changes the training, so it is not tried unless that is allowed.",
    applies=applies,
    space=space,
    moment=Moment.STARTUP,
    frees=frees,
    apply=apply,
    edit=edit,
    costs="Other updates: rates may have to be chosen again. torchao compiles its update (half a "
    "minute on a CPU) and keeps rates in tensors, so a script that assigns rates itself fails.",
    source="https://docs.pytorch.org/ao/stable/api_reference/api_ref_optim.html",
)
