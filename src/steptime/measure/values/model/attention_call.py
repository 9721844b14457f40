"""Values of how a training computes attention."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCall:
    """Calls of attention at one line, in the one update that was examined.

    Attributes:
        where: file and line in the user's code; None where no code of the user's was running.
        way: `function` for torch's `scaled_dot_product_attention`; `layer` for
            `nn.MultiheadAttention` where it computes weights; `written` for single operators.
        backend: the kernel that torch took: `flash`, `cudnn`, `efficient`, `overrideable`, or
            `math` for none; `none` where torch was not asked.
        reasons: what kept torch from a faster kernel, as machine words.
        dtype: of the queries, or of the weights where it is written out.
        num: number of calls.
        length: positions of the longest rows.
    """

    where: str | None = None
    way: str
    backend: str
    reasons: tuple[str, ...] = ()
    dtype: str
    num: int
    length: int
