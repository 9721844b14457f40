"""How one cell is called, and which of its weights torch's LSTM or GRU takes in its place.

In: what a step of a cell computes (`_cell_traces.py`), or a cell of torch's. Out: a `CellSteps`,
or the word for why there is none. That both agree is not said here: `_cells.py` tries it on the
run's own numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ._cell_traces import Atom, Block, Poly, poly

Gate = tuple[Block, Block, tuple[Block, ...]]
"""The weights for the input and for the state, and the biases, which are added up."""

STATES = {"lstm": ("h", "c"), "gru": ("h",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSteps:
    """How a cell is stepped.

    Attributes:
        kind: `lstm` or `gru`.
        size: columns of a state.
        given: the arguments of its forward, `x`, `h` and `c` in their places; `named` those that
            are given by name.
        made: its result likewise.
        forward: its forward as it is written.
        weights: returns torch's weights, (w_ih, w_hh) and maybe (b_ih, b_hh), from the cell's own
            parameters by name.
        knows_zeros: a call without states begins with zeros.
        mode: the cell's `training` when it was looked into; None for torch's own, which have none.
    """

    kind: str
    size: int
    given: tuple[Any, ...]
    made: Any
    forward: Callable[..., Any]
    weights: Callable[[Mapping[str, Any]], list[Any]]
    named: Mapping[str, Any]
    knows_zeros: bool = False
    mode: bool | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its states."""
        return STATES[self.kind]

    def read(self, args: Any, kwargs: Any) -> tuple[Any, tuple[Any, ...] | None] | None:
        """Return the input and the states of a call; None where it is called in another way.

        The states are None where torch's cell is given none, which means zeros.
        """
        found: dict[str, Any] = {}
        if set(kwargs) != set(self.named) or not match(self.given, tuple(args), found):
            return None
        if not all(match(self.named[name], kwargs[name], found) for name in kwargs):
            return None
        states = tuple(found.get(name) for name in self.names)
        if any(one is None for one in states):
            return (found["x"], None) if self.knows_zeros else None
        return found["x"], states

    def step(self, cell: Any, x: Any, states: Sequence[Any]) -> tuple[Any, ...]:
        """Make one step as it is written; return the states after it."""
        values = {"x": x, **dict(zip(self.names, states, strict=True))}
        named = {name: fill(one, values) for name, one in self.named.items()}
        found: dict[str, Any] = {}
        if not match(self.made, self.forward(cell, *fill(self.given, values), **named), found):
            raise RuntimeError("a cell returned something else than it did before")
        return tuple(found[name] for name in self.names)

    def result(self, states: Sequence[Any]) -> Any:
        """Return what the cell returns, with these states in it."""
        return fill(self.made, dict(zip(self.names, states, strict=True)))


def match(template: Any, value: Any, found: dict[str, Any]) -> bool:
    """Put into `found` what stands in the places that a template names; None has no places."""
    if type(template) is str:
        return found.setdefault(template, value) is value
    if value is None:
        return True
    if type(value) is not type(template) or len(value) != len(template):
        return False
    return all(match(one, other, found) for one, other in zip(template, value, strict=True))


def fill(template: Any, values: Mapping[str, Any]) -> Any:
    """Return a template with values in the places that it names."""
    if type(template) is str:
        return values[template]
    return type(template)(fill(one, values) for one in template)


# -- cells of torch's


def torch_steps(kind: str, forward: Callable[..., Any], cell: Any) -> CellSteps:
    """Return how torch's own LSTMCell or GRUCell is stepped."""
    states: Any = ("h", "c") if kind == "lstm" else "h"
    return CellSteps(
        kind=kind,
        size=cell.hidden_size,
        given=("x", states),
        named={},
        made=states,
        forward=forward,
        weights=lambda parameters: list(parameters.values()),
        knows_zeros=True,
    )


# -- cells of the script's


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """The gates of a cell in torch's order, and which argument is what.

    Attributes:
        roles: `x`, `h` or `c` by argument.
        state_biases: of a GRU's new state, those that its reset gate multiplies too.
        is_flipped: the update gate weighs the new state, where torch's weighs the old one.
    """

    kind: str
    gates: tuple[Gate, ...]
    roles: Mapping[int, str]
    state_biases: tuple[Block, ...] = ()
    is_flipped: bool = False


class UnlikeError(Exception):
    """A cell computes something else; its text is the word for it."""


def find_gates(made: Sequence[Poly], state: int) -> tuple[Gates, tuple[str, ...]] | None:
    """Return the gates of a step, and the name of each thing that it returns.

    None: it is neither the step of an LSTM nor of a GRU.

    Args:
        made: what the step returns.
        state: the argument that is the hidden state.

    Raises:
        UnlikeError: it is nearly one.
    """
    for one in made:
        gates = lstm_gates(one, made, state) or gru_gates(one, state)
        if gates is None:
            continue
        if gates.kind == "gru" and all(other == one for other in made):
            return gates, ("h",) * len(made)
        cell = next((other for other in made if other == cell_state(one)), None)
        if gates.kind == "lstm" and all(other in (one, cell) for other in made):
            return gates, tuple("h" if other == one else "c" for other in made)
    return None


def cell_state(hidden: Poly) -> Poly | None:
    """Return c of a hidden state of the form sigmoid(...) * tanh(c)."""
    if len(hidden.terms) != 1 or hidden.terms[0][1] != 1.0:
        return None
    inner = {atom[0]: atom[1] for atom in hidden.terms[0][0]}
    return inner["tanh"] if set(inner) == {"sigmoid", "tanh"} else None


def lstm_gates(hidden: Poly, made: Sequence[Poly], state: int) -> Gates | None:
    """Return the gates if `hidden` is o * tanh(c), c = f * c + i * tanh(g); None if not."""
    after = cell_state(hidden)
    if after is None or after not in made or len(after.terms) != 2:
        return None
    out = next(atom[1] for atom in hidden.terms[0][0] if atom[0] == "sigmoid")
    parts = {}
    for product, factor in after.terms:
        kinds = sorted(atom[0] for atom in product)
        parts[tuple(kinds)] = {atom[0]: atom for atom in product}
        if factor != 1.0:
            return None
    if set(parts) != {("arg", "sigmoid"), ("sigmoid", "tanh")}:
        return None
    forget, new = parts["arg", "sigmoid"], parts["sigmoid", "tanh"]
    polys = (new["sigmoid"][1], forget["sigmoid"][1], new["tanh"][1], out)
    roles = {state: "h", forget["arg"][1]: "c"}
    if len(roles) != 2:
        return None
    gates, roles = read_gates(polys, roles)
    return Gates(kind="lstm", gates=gates, roles=roles)


def gru_gates(hidden: Poly, state: int) -> Gates | None:
    """Return the gates if `hidden` is (1 - z) * n + z * h, or with z for 1 - z; None if not."""
    atoms = {atom[0]: atom for product, _ in hidden.terms for atom in product}
    if set(atoms) != {"arg", "sigmoid", "tanh"} or atoms["arg"][1] != state:
        return None
    h, z, n = ((atoms[kind],) for kind in ("arg", "sigmoid", "tanh"))
    width = hidden.width
    torchs = poly({n: 1.0, sort(n + z): -1.0, sort(h + z): 1.0}, width)
    flipped = poly({h: 1.0, sort(h + z): -1.0, sort(n + z): 1.0}, width)
    if hidden not in (torchs, flipped):
        return None
    reset, of_input, of_state = split_new(atoms["tanh"][1], state)
    gates, roles = read_gates((reset, atoms["sigmoid"][1]), {state: "h"})
    (x,) = (at for at, role in roles.items() if role == "x")
    weight, biases = read_part(of_input, x)
    own, own_biases = read_part(of_state, state)
    return Gates(
        kind="gru",
        gates=(*gates, (weight, own, biases)),
        roles=roles,
        state_biases=own_biases,
        is_flipped=hidden == flipped,
    )


def sort(atoms: tuple[Atom, ...]) -> tuple[Atom, ...]:
    """Return a product in its one order."""
    return tuple(sorted(atoms, key=repr))


def split_new(new: Poly, state: int) -> tuple[Poly, Poly, Poly]:
    """Return the reset gate, and what it does not and does multiply.

    Raises:
        UnlikeError: `reset_first` where the state is multiplied before its product with weights.
    """
    single: dict[tuple[Atom, ...], float] = {}
    reset: dict[tuple[Atom, ...], float] = {}
    gates = set()
    for product, factor in new.terms:
        if len(product) == 1:
            single[product] = factor
        elif len(product) == 2:
            gate = [atom for atom in product if atom[0] == "sigmoid"]
            gates.update(gate)
            reset[tuple(atom for atom in product if atom[0] != "sigmoid")] = factor
    for (atom,) in list(single):
        if atom[0] == "product" and any(len(product) == 2 for product, _ in atom[1].terms):
            raise UnlikeError("reset_first")
    if len(gates) != 1 or len(single) + len(reset) != len(new.terms):
        raise UnlikeError("unlike")
    ((_, gate),) = gates
    return gate, poly(single, new.width), poly(reset, new.width)


def read_part(of: Poly, source: int) -> tuple[Block, tuple[Block, ...]]:
    """Return the weight and the biases of a sum that depends on one argument alone."""
    weights, biases = blocks_of(of)
    if set(weights) != {source}:
        raise UnlikeError("unlike")
    return weights[source], biases


def blocks_of(of: Poly) -> tuple[dict[int, Block], tuple[Block, ...]]:
    """Return the weights of a sum by argument, and its biases."""
    weights: dict[int, Block] = {}
    biases = []
    for product, factor in of.terms:
        kind = product[0][0] if len(product) == 1 and factor == 1.0 else None
        if kind == "bias":
            biases.append(product[0][1])
            continue
        if kind != "product" or len(product[0][1].terms) != 1:
            raise UnlikeError("unlike")
        _, source, block = product[0]
        ((atoms, factor_of_source),) = source.terms
        if len(atoms) != 1 or atoms[0][0] != "arg" or factor_of_source != 1.0:
            raise UnlikeError("unlike")
        if atoms[0][1] in weights:
            raise UnlikeError("unlike")
        weights[atoms[0][1]] = block
    return weights, tuple(biases)


def read_gates(
    polys: Sequence[Poly], roles: Mapping[int, str]
) -> tuple[tuple[Gate, ...], dict[int, str]]:
    """Return the gates of sums over the input and the state, and which argument is the input."""
    found, known = [], dict(roles)
    state = next(at for at, role in roles.items() if role == "h")
    for one in polys:
        weights, biases = blocks_of(one)
        others = [at for at in weights if at != state]
        if state not in weights or len(others) != 1 or known.setdefault(others[0], "x") != "x":
            raise UnlikeError("unlike")
        found.append((weights[others[0]], weights[state], biases))
    if sorted(known.values()).count("x") != 1:
        raise UnlikeError("unlike")
    return tuple(found), known


# -- torch's weights from the script's


def weights_of(torch: Any, gates: Gates, parameters: Mapping[str, Any]) -> list[Any]:
    """Return torch's weights: (w_ih, w_hh), and (b_ih, b_hh) where the cell has any bias."""
    signs = (1.0, -1.0 if gates.is_flipped else 1.0, 1.0, 1.0)
    by_input = put_together(torch, [one[0] for one in gates.gates], signs, parameters)
    by_state = put_together(torch, [one[1] for one in gates.gates], signs, parameters)
    if not gates.state_biases and not any(one[2] for one in gates.gates):
        return [by_input, by_state]
    size = gates.gates[0][1].width
    none = by_input.new_zeros(size)
    biases = [sum_of(one[2], none, parameters) for one in gates.gates]
    ours = torch.cat([one * sign for one, sign in zip(biases, signs, strict=False)])
    others = [none] * (len(biases) - 1) + [sum_of(gates.state_biases, none, parameters)]
    return [by_input, by_state, ours, torch.cat(others)]


def sum_of(blocks: Sequence[Block], none: Any, parameters: Mapping[str, Any]) -> Any:
    """Return the sum of biases."""
    found = none
    for block in blocks:
        found = found + tensor_of(block, parameters)
    return found


def put_together(
    torch: Any, blocks: Sequence[Block], signs: Sequence[float], parameters: Mapping[str, Any]
) -> Any:
    """Return the weights of gates under each other; what lies together already is taken as one."""
    pieces: list[tuple[Block, float]] = []
    for block, sign in zip(blocks, signs, strict=False):
        last, last_sign = pieces[-1] if pieces else (None, 0.0)
        is_next = last is not None and block == Block(
            last.name,
            (last.rows[1], last.rows[1] + block.width),
            last.columns,
            last.is_turned,
        )
        if is_next and last is not None and sign == last_sign:
            longer = Block(last.name, (last.rows[0], block.rows[1]), last.columns, last.is_turned)
            pieces[-1] = (longer, sign)
        else:
            pieces.append((block, sign))
    found = [
        tensor_of(block, parameters) * sign if sign < 0 else tensor_of(block, parameters)
        for block, sign in pieces
    ]
    return found[0] if len(found) == 1 else torch.cat(found)


def tensor_of(block: Block, parameters: Mapping[str, Any]) -> Any:
    """Return the part of a parameter, with its gradient."""
    found = parameters[block.name]
    if block.is_turned:
        found = found.t()
    if block.columns is None:
        return found[slice(*block.rows)]
    return found[slice(*block.rows), slice(*block.columns)]
