"""Neighbor sampling as compiled loops: ranges, picks, and numbering of what was picked.

In: arrays of a graph in CSC form and the nodes of one hop. Out: positions of edges, and local
numbers of their sources. Every function releases the interpreter lock, so that threads sample
different batches at once. Random numbers are a function of a key and of counters alone. Loops are
split by the memory they touch, so that many cache misses are in flight together.

Source of the fused form, without COO and without sorting: https://arxiv.org/abs/2311.17847.
"""

# numba has no types.
# mypy: disable-error-code="misc,no-untyped-call,untyped-decorator"

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

Array = Any
"""An array of numpy; the docstrings say of what."""

AHEAD = 24
"""Edges between a prefetch and its use: some 100 ns of work, the latency of main memory."""

SHORT = 32
"""Up to so many picks, looking through them costs less than a table of those picked."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_UNIT = 2.0**-53

compiled = numba.njit(nogil=True, cache=True)
inlined = numba.njit(nogil=True, cache=True, inline="always")


@intrinsic
def prefetch(typing_context: Any, array: Any, position: Any) -> Any:
    """Ask for one element's cache line; it never faults and returns nothing."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        made = context.make_array(kind)(context, builder, arguments[0])
        place = cgutils.get_item_pointer(
            context, builder, kind, made, [arguments[1]], wraparound=False
        )
        pointer, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        form = ir.FunctionType(ir.VoidType(), [pointer, word, word, word])
        ask = cgutils.get_or_insert_function(builder.module, form, "llvm.prefetch.p0i8")
        flags = [ir.Constant(word, flag) for flag in (0, 3, 1)]  # read, keep close, data
        builder.call(ask, [builder.bitcast(place, pointer), *flags])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@inlined
def mix(state: Any) -> Any:
    """Return 64 well-mixed bits of a 64-bit counter.

    Source: the finalizer of SplitMix64, Steele et al. (2014), https://doi.org/10.1145/2660193.2660195.
    """
    state = (state ^ (state >> np.uint64(30))) * _FIRST
    state = (state ^ (state >> np.uint64(27))) * _SECOND
    return state ^ (state >> np.uint64(31))


@inlined
def stream(key: Any, node: Any, tree: Any) -> Any:
    """Return where the random numbers of one node begin, in one tree."""
    return mix(mix(key ^ (np.uint64(node) * _GOLDEN)) + np.uint64(tree) * _SECOND)


@inlined
def uniform(start: Any, count: Any) -> Any:
    """Return the number `count` of a stream, in [0, 1) on a grid of 2**-53."""
    bits = mix(start + np.uint64(count + 1) * _GOLDEN)
    return np.float64(np.int64(bits >> np.uint64(11))) * _UNIT


@compiled
def node_ranges(indptr: Array, nodes: Array, starts: Array, ends: Array) -> None:
    """Write where the edges into each node begin and end."""
    for i in range(nodes.size):
        starts[i] = indptr[nodes[i]]
        ends[i] = indptr[nodes[i] + 1]


@compiled
def ranges_until(
    indptr: Array, times: Array, nodes: Array, limits: Array, starts: Array, ends: Array
) -> None:
    """Write the ranges of edges no later than each node's limit; `times` rise in each range."""
    for i in range(nodes.size):
        low, high = indptr[nodes[i]], indptr[nodes[i] + 1]
        starts[i] = low
        while low < high:
            middle = (low + high) // 2
            if times[middle] <= limits[i]:
                low = middle + 1
            else:
                high = middle
        ends[i] = low


@compiled
def count_picks(starts: Array, ends: Array, fanout: int, repeats: Any, indptr: Array) -> Any:
    """Write the prefix sums of how many edges each node gets; return all of them."""
    total = np.int64(0)
    indptr[0] = 0
    for i in range(starts.size):
        degree = ends[i] - starts[i]
        if fanout < 0 or (degree < fanout and not repeats):
            total += degree
        elif degree > 0:
            total += fanout
        indptr[i + 1] = total
    return total


@inlined
def is_among(picks: Array, begin: Any, end: Any, wanted: Any) -> Any:
    """Return whether a position was picked already."""
    found = False
    for k in range(begin, end):
        found |= picks[k] == wanted
    return found


@inlined
def claim(table: Array, picked: Any) -> Any:
    """Put a number into an open table of a power of two; return False if it is there."""
    mask = np.uint64(table.size - 1)
    slot = mix(np.uint64(picked)) & mask
    while table[slot] >= 0:
        if table[slot] == picked:
            return False
        slot = (slot + np.uint64(1)) & mask
    table[slot] = picked
    return True


@inlined
def pick_few(picks: Array, begin: Any, fanout: Any, low: Any, degree: Any, start: Any) -> None:
    """Pick `fanout` of `degree` positions without replacement, few of them.

    Source: algorithm F2 of Floyd, in Bentley and Floyd (1987), https://doi.org/10.1145/30401.315746.
    """
    for k in range(fanout):
        last = degree - fanout + k
        position = low + np.int64(uniform(start, k) * (last + 1))
        if is_among(picks, begin, begin + k, position):
            position = low + last
        picks[begin + k] = position


@inlined
def pick_many(picks: Array, begin: Any, fanout: Any, low: Any, degree: Any, start: Any) -> None:
    """Do the same with a table of what was picked."""
    size = 64
    while size < 4 * fanout:
        size *= 2
    table = np.full(size, -1, np.int64)
    for k in range(fanout):
        last = degree - fanout + k
        position = np.int64(uniform(start, k) * (last + 1))
        if not claim(table, position):
            position = last
            claim(table, position)
        picks[begin + k] = low + position


@compiled
def pick_uniform(
    key: Any, nodes: Array, trees: Array, starts: Array, ends: Array, indptr: Array, picks: Array
) -> None:
    """Write positions of edges, `indptr[i]` to `indptr[i + 1]` of them into node i.

    A node with more picks than edges has them with replacement; `count_picks` decided that.
    """
    for i in range(nodes.size):
        low, degree, begin = starts[i], ends[i] - starts[i], indptr[i]
        num = indptr[i + 1] - begin
        if num == degree:
            for k in range(num):
                picks[begin + k] = low + k
            continue
        start = stream(key, nodes[i], trees[i] if trees.size else 0)
        if num <= SHORT:
            pick_few(picks, begin, num, low, degree, start)
        else:
            pick_many(picks, begin, num, low, degree, start)


@compiled
def pick_repeated(
    key: Any, nodes: Array, trees: Array, starts: Array, ends: Array, indptr: Array, picks: Array
) -> None:
    """Write positions of edges picked with replacement, each with the same chance."""
    for i in range(nodes.size):
        low, degree = starts[i], ends[i] - starts[i]
        start = stream(key, nodes[i], trees[i] if trees.size else 0)
        for k in range(indptr[i + 1] - indptr[i]):
            picks[indptr[i] + k] = low + np.int64(uniform(start, k) * degree)


@inlined
def keep_least(picks: Array, keys: Array, begin: Any, num: Any, key: Any, position: Any) -> None:
    """Put a pick into its place among `num` in the order of their keys; the last one falls out."""
    k = num
    while k > 0 and keys[k - 1] > key:
        if k < keys.size:
            keys[k] = keys[k - 1]
            picks[begin + k] = picks[begin + k - 1]
        k -= 1
    if k < keys.size:
        keys[k] = key
        picks[begin + k] = position


@compiled
def pick_weighted(
    key: Any, nodes: Array, trees: Array, starts: Array, ends: Array, weights: Array,
    indptr: Array, picks: Array,
) -> None:  # fmt: skip
    """Write positions picked one after the other by weight, without replacement.

    `indptr` comes with the most that each node may get and leaves with what it got: an edge of
    weight 0 is never picked.

    Source: Efraimidis and Spirakis (2006), https://doi.org/10.1016/j.ipl.2005.11.003: the least
    of exponential variables whose rates are the weights.
    """
    keys = np.empty(max(1, np.max(np.diff(indptr)) if nodes.size else 1), np.float64)
    total, begin = np.int64(0), indptr[0]
    for i in range(nodes.size):
        num, start = 0, stream(key, nodes[i], trees[i] if trees.size else 0)
        most, begin = indptr[i + 1] - begin, indptr[i + 1]
        takes_all = most == ends[i] - starts[i]
        for k in range(ends[i] - starts[i]):
            weight = weights[starts[i] + k]
            if weight <= 0:
                continue
            if takes_all:
                picks[total + num] = starts[i] + k
                num += 1
                continue
            drawn = -np.log(1.0 - uniform(start, k)) / weight
            if num < most or drawn < keys[num - 1]:
                keep_least(picks, keys[:most], total, num, drawn, starts[i] + k)
                num = min(num + 1, most)
        indptr[i] = total
        total += num
    indptr[nodes.size] = total


@compiled
def pick_weighted_repeated(
    key: Any, nodes: Array, trees: Array, starts: Array, ends: Array, weights: Array,
    indptr: Array, picks: Array,
) -> None:  # fmt: skip
    """Write positions picked by weight with replacement, in the order of the edges."""
    total, begin = np.int64(0), indptr[0]
    for i in range(nodes.size):
        start = stream(key, nodes[i], trees[i] if trees.size else 0)
        most, begin = indptr[i + 1] - begin, indptr[i + 1]
        whole, last = 0.0, np.int64(-1)
        for position in range(starts[i], ends[i]):
            whole += weights[position]
            if weights[position] > 0:
                last = position
        num = most if whole > 0 else 0
        drawn = np.empty(num, np.float64)
        for k in range(num):
            drawn[k] = uniform(start, k) * whole
        drawn.sort()
        position, passed = starts[i] - 1, 0.0
        for k in range(num):
            while drawn[k] >= passed and position < last:
                position += 1
                passed += weights[position]
            picks[total + k] = position
        indptr[i] = total
        total += num
    indptr[nodes.size] = total


@compiled
def number_by_map(
    indices: Array, picks: Array, numbers: Array, nodes: Array, count: int, rows: Array
) -> int:
    """Write the local number of each pick's source, and new sources behind the `count` nodes.

    `numbers` is the map from a node to its local number, -1 where it has none.
    """
    size = picks.size
    for i in range(min(2 * AHEAD, size)):
        prefetch(indices, picks[i])
    for i in range(size):
        if i + 2 * AHEAD < size:
            prefetch(indices, picks[i + 2 * AHEAD])
        if i + AHEAD < size:
            prefetch(numbers, np.int64(indices[picks[i + AHEAD]]))
        node = np.int64(indices[picks[i]])
        number = numbers[node]
        if number < 0:
            number = count
            numbers[node] = count
            nodes[count] = node
            count += 1
        rows[i] = number
    return count


@compiled
def take(values: Array, places: Array, taken: Array) -> None:
    """Write the values at some places, as numbers of 64 bits."""
    size = places.size
    for i in range(size):
        if i + AHEAD < size:
            prefetch(values, places[i + AHEAD])
        taken[i] = values[places[i]]


@compiled
def forget(numbers: Array, nodes: Array, count: int) -> None:
    """Take the given nodes out of the map again: what was touched, and no more."""
    for i in range(count):
        if i + AHEAD < count:
            prefetch(numbers, np.int64(nodes[i + AHEAD]))
        numbers[nodes[i]] = -1


@inlined
def find_slot(table: Array, nodes: Array, trees: Array, node: Any, tree: Any) -> Any:
    """Return where a node of a tree stands in the table of local numbers, or may be put."""
    mask = np.uint64(table.size - 1)
    slot = stream(_GOLDEN, node, tree) & mask
    while table[slot] >= 0:
        number = table[slot]
        if nodes[number] == node and trees[number] == tree:
            break
        slot = (slot + np.uint64(1)) & mask
    return slot


@compiled
def number_by_table(
    indices: Array, picks: Array, indptr: Array, reached: Array, nodes: Array, trees: Array,
    count: int, rows: Array,
) -> int:  # fmt: skip
    """Do what `number_by_map` does where each seed has a tree of its own.

    `reached` are the trees of the nodes whose edges were picked.
    """
    size = 64
    while size < 2 * (count + picks.size):
        size *= 2
    table = np.full(size, -1, np.int32)
    for number in range(count):
        slot = find_slot(table, nodes, trees, nodes[number], trees[number])
        if table[slot] < 0:
            table[slot] = number
    for i in range(indptr.size - 1):
        for k in range(indptr[i], indptr[i + 1]):
            node = np.int64(indices[picks[k]])
            slot = find_slot(table, nodes, trees, node, reached[i])
            if table[slot] < 0:
                nodes[count], trees[count] = node, reached[i]
                table[slot] = count
                count += 1
            rows[k] = table[slot]
    return count


@compiled
def plain_hop(
    key: Any, graph: Any, fanout: int, repeats: Any, numbers: Array, nodes: Array, span: Any,
    room: Any,
) -> Any:  # fmt: skip
    """Do one hop without weights, times and trees in one call, so that threads meet seldom.

    Args:
        key: of the random numbers.
        graph: its `indptr`, `indices` and `edge_ids`.
        fanout: edges for each node.
        repeats: picks are with replacement.
        numbers: the map from nodes to local numbers.
        nodes: the nodes so far, with room for those to come.
        span: where the hop's nodes begin and end in them.
        room: memory for starts, ends and picks.

    Returns:
        The prefix sums of picks, the local numbers of sources, the edges, and the count of nodes.
    """
    indptr, indices, edge_ids = graph
    starts, ends, picks = room
    here = nodes[span[0] : span[1]]
    starts, ends = starts[: here.size], ends[: here.size]
    node_ranges(indptr, here, starts, ends)
    sums = np.empty(here.size + 1, np.int64)
    total = count_picks(starts, ends, fanout, repeats, sums)
    picks = picks[:total]
    trees = np.empty(0, np.int64)
    if repeats:
        pick_repeated(key, here, trees, starts, ends, sums, picks)
    else:
        pick_uniform(key, here, trees, starts, ends, sums, picks)
    rows, edges = np.empty(total, np.int64), np.empty(total, np.int64)
    count = number_by_map(indices, picks, numbers, nodes, span[2], rows)
    if edge_ids.size:
        take(edge_ids, picks, edges)
    else:
        edges[:] = picks
    return sums, rows, edges, count


@compiled
def columns_of(indptr: Array, first: int) -> Array:
    """Return the local number of each edge's target, the first node having number `first`."""
    columns = np.empty(indptr[-1], np.int64)
    for i in range(indptr.size - 1):
        for k in range(indptr[i], indptr[i + 1]):
            columns[k] = first + i
    return columns


@compiled
def by_target(targets: Array, indptr: Array, order: Array) -> None:
    """Write the prefix sums of how many edges each target has, and the stable order by target."""
    for i in range(targets.size):
        indptr[targets[i] + 1] += 1
    for i in range(indptr.size - 1):
        indptr[i + 1] += indptr[i]
    places = indptr[:-1].copy()
    for i in range(targets.size):
        order[places[targets[i]]] = i
        places[targets[i]] += 1
