"""The process exists to count the operators of its updates and their work."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..count.operators.product_book import ProductBook
from ..count.whole_updates import WholeUpdates, hook_threads
from .mode import GuestMode, Targets

if TYPE_CHECKING:
    from ..frameworks.torch.torch_context import TorchContext


class CountMode(GuestMode):
    """Count whole updates.

    Args:
        sees_products: the sizes of products are kept, too, for `plan shapes`.
    """

    looks_at_weights = looks_at_script = answers = records_calls = may_rest = False

    def __init__(self, *, sees_products: bool) -> None:
        self.sees_products = sees_products
        self.counting: WholeUpdates | None = None

    def install(
        self, context: TorchContext, targets: Targets, finish: Callable[[TorchContext], None]
    ) -> None:
        """See the operators of threads that the script starts."""
        hook_threads(context.torch, lambda: context.journal, lambda: self.counting)

    def new_plan(self, context: TorchContext) -> WholeUpdates:
        """Count every update that counts."""
        products = ProductBook(context.torch, context.frames) if self.sees_products else None
        self.counting = WholeUpdates(context.torch, context.recorder, products=products)
        return self.counting
