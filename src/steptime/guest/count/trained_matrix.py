"""One matrix that may be trained: how often the forward and the backward met it, and what did.

`completeness.py` fills it in.
"""

from __future__ import annotations

import weakref
from typing import Any

FORWARD, BACKWARD = "forward", "backward"


class Matrix:
    """A tensor of two dimensions or more that may be trained, and what has met it.

    Attributes:
        storage: address of the storage in which it lies now.
        num_forward: operators that computed something with it in the forward.
        num_products: products that autograd will go back through.
        num_nodes: graph nodes of products that the backward ran for it.
        is_plain: operators without products used it, too: lookups, sums, norms.
        is_replicated: copies of it on other devices add to its gradient.
        takers: what used it and cannot be counted.
        gradients: of each gradient that arrived, whether a counted product made it; None where no
            operator did.
    """

    def __init__(self, tensor: Any) -> None:
        self.reference = weakref.ref(tensor)
        self.shape = tuple(tensor.shape)
        self.size = int(tensor.numel())
        self.storage: int | None = None
        self.num_forward = self.num_products = self.num_nodes = 0
        self.is_plain = self.is_replicated = False
        self.takers: list[str] = []
        self.gradients: set[bool | None] = set()

    @property
    def is_met(self) -> bool:
        """Whether all that the forward did with it was counted."""
        return bool(self.num_forward) and not self.takers and self.num_products >= self.num_nodes

    @property
    def has_made_gradient(self) -> bool:
        """Whether counted operators made its gradients: products, unless it met none."""
        if self.is_replicated:  # other devices' parts are added outside of torch's operators
            return True
        is_plain = self.is_plain or not self.num_forward
        return None not in self.gradients and (is_plain or False not in self.gradients)

    def passes(self) -> list[str]:
        """Return the passes in which it was not met."""
        return [
            name
            for name, is_fine in ((FORWARD, self.is_met), (BACKWARD, self.has_made_gradient))
            if not is_fine
        ]
