"""Proves that the count of a step is whole: every trained matrix met a counted product.

In: each operator that a tally has counted. Out: which matrices received a gradient, and which of
them met no counted operator in the forward, or have a gradient that none made. Storages say what a
tensor is a view or a copy of, and whether an operator that was seen made its elements: what raw
kernels write, NumPy or another thread that is not watched, nobody made. Weak references alone are
kept, except for graph nodes until the end of the update.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import inf
from typing import Any, NamedTuple

from ..hooks.module_tree import held_by
from ..timeline.interrupts import raise_bursts
from .graph_nodes import (
    is_native,
    leaves_below,
    originals_of,
    own_function_of,
)
from .operators.flops import makes_products
from .operators.operator_names import ADDITIONS, COPIES, IDLE, UNWRITTEN
from .tensor_facts import is_view, tensors_in
from .trained_matrix import Matrix

SUMS = ("add", "badd", "sparse_addmm")
"""Products of this name add their first argument, which meets no product."""

MAX_UNMET = 20
"""This many matrices are named, the largest ones."""


class CompletenessProof:
    """What has met the trained matrices over all updates that were counted.

    Forward and backward of a model may belong to two updates, as those of a GAN's generator do, so
    only the sum over a round tells.

    Args:
        torch: the module.
        fail: counts a failure of ours by place.
        sees_all: whether all that the script computes is seen, not only calls of models.
    """

    def __init__(
        self,
        torch: Any,
        fail: Callable[[str], None] = raise_bursts,
        *,
        sees_all: bool = True,
    ) -> None:
        self.torch = torch
        self.fail = fail
        self.sees_all = sees_all
        self.calls: list[tuple[int, float]] = []  # graph nodes made in calls of models
        self._next_node = getattr(torch.autograd, "_get_sequence_nr", lambda: 0)
        self.matrices: dict[int, Matrix] = {}  # by the id of the tensor
        self.names: dict[int, str] = {}
        self.made: dict[int, tuple[Any, bool]] = {}  # storages, and whether a product made them
        self.held: dict[int, tuple[Any, list[tuple[int, int, Matrix]]]] = {}
        self.nodes: dict[int, Any] = {}
        self.kinds: dict[Any, Kind] = {}
        self.unseen: dict[str, None] = {}  # functions whose results no operator made
        self.uncovered: dict[str, None] = {}
        self.before: list[tuple[Any, Any]] = []
        self.is_over = False
        self._node_now = torch._C._current_autograd_node

    # -- parameters

    def name(self, path: str, module: Any) -> None:
        """Learn the names of a module's own parameters."""
        for name, one in held_by(module, "_parameters"):
            self.names.setdefault(id(one), f"{path}.{name}")

    def begin_update(self, optimizers: Iterable[Any]) -> None:
        """Note the gradients that there are: later ones belong to the update that begins."""
        self.before = []
        with self.torch._C.DisableTorchFunction():
            for optimizer in optimizers:
                groups = () if optimizer is None else optimizer.__dict__.get("param_groups", ())
                for one in (one for group in groups for one in group["params"]):
                    if type(one) in (self.torch.Tensor, self.torch.nn.Parameter) and one.dim() > 1:
                        gradient = one.grad
                        old = None if gradient is None else weakref.ref(gradient)
                        self.before.append((weakref.ref(one), old))

    def end_update(self) -> None:
        """Find matrices with a gradient that no operator brought, and let go of graph nodes."""
        before, self.before = self.before, []
        self.nodes.clear()
        with self.torch._C.DisableTorchFunction():
            for reference, old in before:
                one = reference()
                gradient = None if one is None else one.grad
                if gradient is not None and (old is None or old() is not gradient):
                    self.see_gradients([one])

    def see_gradients(self, tensors: Iterable[Any]) -> None:
        """Note which tensors have a gradient now that autograd did not bring.

        A script may compute it by `autograd.grad` and set it.
        """
        for one in tensors:
            matrix = None if one.grad is None else self._matrix_of(one)
            if matrix is not None and not matrix.gradients:
                matrix.gradients.add(True if matrix.num_nodes else self.is_made(one.grad))

    def _matrix_of(self, tensor: Any) -> Matrix | None:
        """Return what is known of a leaf of the graph; None where it is no matrix."""
        known = self.matrices.get(id(tensor))
        if known is not None and known.reference() is not tensor:
            known = None
        local = getattr(tensor, "_local_tensor", tensor)  # a DTensor's part on this rank
        storage = storage_of(local) if tensor.dim() > 1 else None
        if storage is None or (known is not None and known.storage == storage._cdata):
            return known
        if known is None:
            if storage._cdata in self.made and not isinstance(tensor, self.torch.nn.Parameter):
                return None  # an input, or what a checkpoint cut off to go on from there
            known = self.matrices[id(tensor)] = Matrix(tensor)
        known.storage = storage._cdata  # a library may have put its elements elsewhere
        self._hold(storage, [(*_span(local), known)])
        return known

    def _hold(self, storage: Any, parts: list[tuple[int, int, Matrix]]) -> None:
        known = self.held.get(storage._cdata)
        if known is not None:
            known[1].extend(one for one in parts if one not in known[1])
            return
        forget = partial(_forget, self.held, storage._cdata)
        self.held[storage._cdata] = weakref.ref(storage, forget), list(parts)

    def _matrices_in(self, tensor: Any) -> list[Matrix]:
        """Return the matrices that a tensor is, or is a view or a copy of."""
        base = tensor._base if tensor._base is not None else tensor
        if base is not tensor and base.requires_grad and base.is_leaf:
            self._matrix_of(base)
        storage = storage_of(tensor)
        if storage is None:
            return []
        if storage._cdata not in self.held:
            if storage._cdata in self.made:
                return []
            originals, is_replica = originals_of(base)
            found = [one for one in map(self._matrix_of, originals) if one is not None]
            if not found:
                return []
            for matrix in found:
                matrix.is_replicated |= is_replica
            self._hold(storage, [(0, storage.nbytes(), matrix) for matrix in found])
        begin, end = _span(tensor)
        parts = self.held[storage._cdata][1]
        return [one for first, last, one in parts if first < end and begin < last]

    # -- operators

    def add(self, func: Any, args: Any, kwargs: Any, result: Any, *, is_covered: bool) -> None:
        """Take an operator that has run; after a failure of ours nothing is claimed."""
        if self.is_over:
            return
        try:
            self._add(func, args, kwargs, result, is_covered=is_covered)
        except BaseException:
            self.give_up()

    def _add(self, func: Any, args: Any, kwargs: Any, result: Any, *, is_covered: bool) -> None:
        kind = self.kinds.get(func)
        if kind is None:
            kind = self.kinds[func] = kind_of(func)
        node = self._node_now()
        taken = list(tensors_in([*args, *kwargs.values()]) if kwargs else tensors_in(args))
        if node is not None and type(node).__name__ == "AccumulateGrad":
            into = kwargs.get("out")  # DDP's hook scales a gradient into its bucket there
            come = [one for one in taken if one is not into and one.dim()]
            self._arrive(node.variable, come, result)
            return
        if node is None:
            self._find_sources(taken)
        for one in taken:
            if one.requires_grad and one.is_leaf:
                self._matrix_of(one)
        if kind.makes_nothing:
            return
        written = list(written_by(kind, args, kwargs)) if kind.writes else []
        given = [*tensors_in(result), *written]
        if kind.is_idle:
            self._copy(taken, [*given, *taken])
            self._make([*given, *taken], is_product=True in map(self.is_made, taken))
            return
        if kind.is_copy:
            self._copy([one for one in taken if not any(one is each for each in written)], given)
            return
        is_product = is_covered and kind.is_product
        self._use(taken, kind, is_product=is_product, is_covered=is_covered)
        made = [self.is_made(one) for one in taken]
        if not (node is not None and kind.is_addition and None in made):
            self._make(given, is_product=is_product or True in made)
        if node is not None and is_product:
            self._run_node(node)

    def _use(self, taken: list[Any], kind: Kind, *, is_product: bool, is_covered: bool) -> None:
        """Note which matrices an operator computed with, if it belongs to a forward."""
        has_graph = self.torch.is_grad_enabled()
        is_forward = self._node_now() is None
        if not is_covered:
            self.uncovered[kind.name] = None
        if not (has_graph or is_forward):
            return
        added = self._matrices_in(taken[0]) if kind.is_sum and taken else []
        for matrix in {id(one): one for each in taken for one in self._matrices_in(each)}.values():
            matrix.num_forward += is_forward
            matrix.num_products += is_product and has_graph
            matrix.is_plain |= not is_product or any(matrix is one for one in added)
            if not is_covered and kind.name not in matrix.takers:
                matrix.takers.append(kind.name)

    def _copy(self, taken: list[Any], given: list[Any]) -> None:
        """Let copies be of the matrices that they were copied from."""
        parts = [one for each in taken for one in self._matrices_in(each)]
        made = [self.is_made(one) for one in taken]
        for one in given:
            storage = storage_of(one) if parts else None
            if storage is not None and self._is_new(storage, parts):
                self._hold(storage, [(0, storage.nbytes(), matrix) for matrix in parts])
        if None not in made:
            self._make(given, is_product=True in made)

    def _is_new(self, storage: Any, parts: list[Matrix]) -> bool:
        """Return whether a storage is not that of these matrices, which copy into themselves."""
        known = self.held.get(storage._cdata)
        return known is None or not all(one in [held[2] for held in known[1]] for one in parts)

    def _make(self, given: Iterable[Any], *, is_product: bool) -> None:
        for one in given:
            storage = storage_of(one)
            if storage is not None:
                forget = partial(_forget, self.made, storage._cdata)
                self.made[storage._cdata] = weakref.ref(storage, forget), is_product

    def is_made(self, tensor: Any) -> bool | None:
        """Return whether a product made its elements; None where no operator did."""
        storage = storage_of(tensor)
        if storage is None:
            return False  # without a storage of its own, as sparse ones: what it holds is followed
        known = self.made.get(storage._cdata)
        if known is None:
            return False if storage._cdata in self.held else None
        return known[1]

    # -- the backward

    def _arrive(self, variable: Any, taken: list[Any], result: Any) -> None:
        """Take the gradient that a leaf of the graph receives."""
        if not taken:
            return
        is_product = self.is_made(taken[-1])  # the first of two is what it had before
        matrix = self._matrix_of(variable)
        if matrix is not None:
            matrix.gradients.add(is_product)
        if is_product is not None:
            self._make(tensors_in(result), is_product=is_product)

    def _run_node(self, node: Any) -> None:
        """Note for which matrices a graph node of torch's own makes products, once a node."""
        if id(node) in self.nodes or not is_native(node):
            return
        self.nodes[id(node)] = node
        found = [self._matrix_of(one) for one in leaves_below(node)]
        for matrix in {id(one): one for one in found if one is not None}.values():
            matrix.num_nodes += 1

    # -- results that no operator made

    def see_inputs(self, values: Iterable[Any]) -> None:
        """Take the inputs of a model for what they are: data, even if they need gradients."""
        try:
            self.calls.append((self._next_node(), inf))
            self._make(tensors_in(list(values)), is_product=False)
        except BaseException:
            self.give_up()

    def see_results(self, values: Iterable[Any]) -> None:
        """Look at what a model returned: nothing may compute with it where we see it."""
        try:
            self._find_sources(list(tensors_in(list(values))))
            if self.calls:
                self.calls[-1] = self.calls[-1][0], self._next_node()
        except BaseException:
            self.give_up()

    def give_up(self) -> None:
        """Claim nothing from now on: we failed."""
        self.fail("completeness")
        self.is_over = True

    def _find_sources(self, taken: Iterable[Any]) -> None:
        """Find functions of the script's own that returned what no operator made."""
        for one in taken:
            storage = None if one.is_leaf else storage_of(one)
            if storage is None or storage._cdata in self.made or storage._cdata in self.held:
                continue
            node = own_function_of(one)
            below = [] if node is None else leaves_below(node)
            if node is None or any(self._is_of(leaf, storage) for leaf in below):
                continue
            matrices = [one for one in map(self._matrix_of, below) if one is not None]
            if not (matrices or self.sees_all or self._is_of_a_call(node)):
                continue  # what a script computes between its models is not looked at
            name = type(node).__name__.removesuffix("Backward")
            self.unseen[name] = None
            for matrix in matrices:
                if name not in matrix.takers:
                    matrix.takers.append(name)

    def _is_of_a_call(self, node: Any) -> bool:
        """Return whether a call of a model made a graph node."""
        number = getattr(node, "_sequence_nr", lambda: -1)()
        return any(began <= number < ended for began, ended in self.calls)

    def _is_of(self, tensor: Any, storage: Any) -> bool:
        """Return whether a tensor lies in a storage, so that who returned it computed nothing."""
        own = storage_of(tensor)
        return own is not None and own._cdata == storage._cdata

    # -- what came of it

    def table(self) -> dict[str, Any] | None:
        """Return it as JSON of `Completeness` (measure/values/model/work.py), if it is known."""
        trained = [one for one in self.matrices.values() if one.gradients]
        unmet = [(one, one.passes()) for one in trained if one.passes()]
        is_complete = not (unmet or self.unseen or self.uncovered)
        if self.is_over or (is_complete and not trained):
            return None
        unmet.sort(key=lambda pair: -pair[0].size)
        return {
            "is_complete": is_complete,
            "num_matrices": len(trained),
            "num_met": len(trained) - len(unmet),
            "unmet": [
                {"name": self._name_of(one), "passes": passes, "takers": one.takers}
                for one, passes in unmet[:MAX_UNMET]
            ],
            "unseen": list(self.unseen)[:MAX_UNMET],
        }

    def met_fraction(self) -> float | None:
        """Return the share of the trained matrices' elements that were met; None if not known."""
        trained = [one for one in self.matrices.values() if one.gradients]
        whole = sum(one.size for one in trained)
        met = sum(one.size for one in trained if not one.passes())
        if met < whole:
            return met / whole
        return None if self.unseen else 1.0

    def _name_of(self, matrix: Matrix) -> str:
        tensor = matrix.reference()
        return self.names.get(id(tensor), f"a matrix of {' x '.join(map(str, matrix.shape))}")


# -- tensors and nodes


def _forget(owner: dict[int, Any], key: int, gone: Any) -> None:
    """Forget a storage that is gone, since its address may be used again."""
    if owner.get(key, (None,))[0] is gone:
        owner.pop(key, None)


def storage_of(tensor: Any) -> Any:
    """Return a tensor's storage; None where it has none, as sparse ones."""
    try:
        return tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):
        return None


def _span(tensor: Any) -> tuple[int, int]:
    """Return the first byte of a tensor in its storage, and the byte behind its last one."""
    size, begin = int(tensor.element_size()), int(tensor.storage_offset())
    if not tensor.numel():
        return begin * size, begin * size
    last = begin + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride()))
    return begin * size, (int(last) + 1) * size


def written_by(kind: Kind, args: Any, kwargs: Any) -> Iterator[Any]:
    """Yield the tensors among an operator's arguments that it writes."""
    for place, name in kind.writes:
        yield from tensors_in(args[place] if place < len(args) else kwargs.get(name))


class Kind(NamedTuple):
    """What is known of an operator, whatever its arguments are.

    Attributes:
        makes_nothing: it returns a view, or memory that somebody else writes.
        is_idle: it moves elements between ranks.
        is_copy: what it returns is a copy of what it takes.
        is_product: it multiplies matrices by a formula.
        is_sum: it is a product that adds its first argument.
        is_addition: autograd may add up gradients with it.
        writes: places and names of the arguments that it writes.
    """

    name: str
    makes_nothing: bool = False
    is_idle: bool = False
    is_copy: bool = False
    is_product: bool = False
    is_sum: bool = False
    is_addition: bool = False
    writes: tuple[tuple[int, str], ...] = ()


def kind_of(func: Any) -> Kind:
    """Return what is known of an operator by its schema."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return Kind(str(func))  # of a higher order: what it runs inside is not seen
    space, _, short = schema.name.partition("::")
    is_product = makes_products(schema.name)
    return Kind(
        schema.name,
        makes_nothing=is_view(func) or schema.name in UNWRITTEN,
        is_idle=space in IDLE,
        is_copy=schema.name in COPIES,
        is_product=is_product,
        is_sum=is_product and short.lstrip("_").startswith(SUMS),
        is_addition=schema.name in ADDITIONS,
        writes=tuple(
            (place, one.name)
            for place, one in enumerate(schema.arguments)
            if one.alias_info is not None and one.alias_info.is_write
        ),
    )
