"""Times operators alone, of one size and of another, in turns: A B, B A, A B.

In: pairs of lists of operators, by their kind and sizes as `steptime plan shapes` sees them. Out:
for each pair one line with the time of all of its operators in each round, before and after. On a
processor with one thread the time is that of the process, which neighbors disturb little.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

from .repeat import Clock

NUM_ROUNDS = 7
MIN_ROUNDS = 3
REPETITION_S = 0.006
"""Long compared with the clock; a round has two of them for each operator."""

MAX_CALLS = 2_000
ERRORS = (RuntimeError, TypeError, ValueError, NotImplementedError, AttributeError)
"""What torch raises for sizes that it refuses, or where an operator is not there."""

Operator = dict[str, Any]
Call = Callable[[], object]


def measure(torch: Any, request: dict[str, Any], clock: Clock) -> Iterator[dict[str, Any]]:
    """Yield one line for each pair of the request, in their order, while there is time."""
    torch.set_num_threads(request["num_threads"])
    bench = OperatorBench(torch, request)
    pairs = request["pairs"]
    for number, pair in enumerate(pairs):
        share_s = max(0.0, clock.left_s()) / (len(pairs) - number)
        line: dict[str, Any] = {"k": "operators", "id": pair["id"], "clock": bench.clock_name}
        try:
            rounds = bench.rounds_of(pair, until_s=time.perf_counter() + share_s)
        except ERRORS as error:
            lines = str(error).splitlines()
            yield {**line, "missing": "not_supported", "detail": lines[0][:200] if lines else ""}
            continue
        if len(rounds) < MIN_ROUNDS:
            yield {**line, "missing": "out_of_time"}
        else:
            yield {**line, "rounds": rounds}


class OperatorBench:
    """Makes operators and times them."""

    def __init__(self, torch: Any, request: dict[str, Any]) -> None:
        self.torch = torch
        self.device = request["device"]
        self.limit_bytes = request["limit_bytes"]
        self.is_cpu = self.device == "cpu"
        self.uses_process = self.is_cpu and request["num_threads"] == 1
        self.clock_name = "cpu" if self.uses_process else "wall"
        self.read: Callable[[], float] = (
            time.process_time if self.uses_process else time.perf_counter
        )

    def rounds_of(self, pair: dict[str, Any], *, until_s: float) -> list[list[float]]:
        """Return the seconds of all operators before and after, by round."""
        sums = [[0.0, 0.0] for _ in range(NUM_ROUNDS)]
        num = NUM_ROUNDS
        operators = list(zip(pair["before"], pair["after"], strict=True))
        for number, (before, after) in enumerate(operators):
            left_s = (until_s - time.perf_counter()) / (len(operators) - number)
            times = self._times(before, after, left_s)
            num = min(num, len(times))
            for total, (one, other) in zip(sums, times, strict=False):
                total[0] += one * before["num"]
                total[1] += other * before["num"]
        return sums[:num]

    def _times(self, before: Operator, after: Operator, left_s: float) -> list[tuple[float, float]]:
        """Return the seconds of one call of each, in rounds that begin with another one."""
        began_s = time.perf_counter()
        one, other = self.make(before), self.make(after)
        calls = self._calls(one), self._calls(other)
        found = []
        for number in range(NUM_ROUNDS):
            if number >= MIN_ROUNDS and time.perf_counter() - began_s > left_s:
                break
            if number % 2:
                second = self._timed(other, calls[1])
                first = self._timed(one, calls[0])
            else:
                first = self._timed(one, calls[0])
                second = self._timed(other, calls[1])
            found.append((first / calls[0], second / calls[1]))
        return found

    def _calls(self, call: Call) -> int:
        """Return how many calls take long enough; it warms up, too."""
        self._timed(call, 2)
        took_s = self._timed(call, 1)
        return max(1, min(MAX_CALLS, round(REPETITION_S / max(took_s, 1e-7))))

    def _timed(self, call: Call, calls: int) -> float:
        began_s = self.read()
        for _ in range(calls):
            call()
        if not self.is_cpu:
            self.torch.cuda.synchronize(self.device)
        return self.read() - began_s

    # -- operators

    def make(self, operator: Operator) -> Call:
        """Return what runs an operator of these sizes once; its numbers are random."""
        makers = {
            "matmul": self._product,
            "convolution": self._convolution,
            "attention": self._attention,
            "recurrent": self._recurrent,
        }
        return makers[operator["kind"]](operator["sizes"], operator)

    def _random(self, operator: Operator, *shape: int) -> Any:
        torch = self.torch
        dtype = getattr(torch, operator["dtype"])
        number = 1
        for size in shape:
            number *= size
        if number * dtype.itemsize * 4 > self.limit_bytes:
            raise RuntimeError("it does not fit into the free memory")
        return torch.randn(*shape, device=self.device).to(dtype)

    def _product(self, s: dict[str, Any], operator: Operator) -> Call:
        turned = s.get("turned") or [False, False]
        batch = [s["batch"]] if s["batch"] > 1 else []
        left = self._matrix(operator, batch, s["m"], s["inner"], is_turned=turned[0])
        right = self._matrix(operator, batch, s["inner"], s["n"], is_turned=turned[1])
        multiply = self.torch.bmm if batch else self.torch.mm
        return lambda: multiply(left, right)

    def _matrix(
        self, operator: Operator, batch: list[int], rows: int, columns: int, *, is_turned: bool
    ) -> Any:
        if is_turned:
            return self._random(operator, *batch, columns, rows).transpose(-1, -2)
        return self._random(operator, *batch, rows, columns)

    def _convolution(self, s: dict[str, Any], operator: Operator) -> Call:
        taken = self._random(operator, s["batch"], s["channels_in"], *s["space"])
        pair = (s["channels_in"], s["channels_out"] // s["groups"])
        if not s["transposed"]:
            pair = (s["channels_out"], s["channels_in"] // s["groups"])
        weight = self._random(operator, *pair, *s["kernel"])
        no_padding = [0] * len(s["space"])
        how = (s["stride"], s["padding"], s["dilation"], s["transposed"], no_padding, s["groups"])
        forward = self.torch.ops.aten.convolution.default
        if not s["wanted"]:
            return lambda: forward(taken, weight, None, *how)
        made = forward(taken, weight, None, *how)
        backward = self.torch.ops.aten.convolution_backward.default
        mask = [*s["wanted"], False]
        return lambda: backward(made, taken, weight, None, *how, mask)

    def _attention(self, s: dict[str, Any], operator: Operator) -> Call:
        heads, lengths = (s["heads"], s["kv_heads"]), (s["length"], s["key_length"])
        query = self._random(operator, s["batch"], heads[0], lengths[0], s["head_size"])
        key = self._random(operator, s["batch"], heads[1], lengths[1], s["head_size"])
        value = self._random(operator, s["batch"], heads[1], lengths[1], s["value_size"])
        named: dict[str, Any] = {"is_causal": s["is_causal"]}
        if heads[0] != heads[1]:
            named["enable_gqa"] = True
        attend = self.torch.nn.functional.scaled_dot_product_attention
        if operator["which"] == "forward":
            return self._call(operator, lambda: attend(query, key, value, **named), ())
        inputs = [one.requires_grad_() for one in (query, key, value)]
        return self._call(operator, lambda: attend(query, key, value, **named), inputs)

    def _recurrent(self, s: dict[str, Any], operator: Operator) -> Call:
        torch, kinds = self.torch, {4: "LSTM", 3: "GRU", 1: "RNN"}
        layer = getattr(torch.nn, kinds[s["gates"] // s["hidden"]])
        dtype = getattr(torch, operator["dtype"])
        model = layer(s["channels_in"], s["hidden"], device=self.device, dtype=dtype)
        taken = self._random(operator, s["steps"] // s["batch"], s["batch"], s["channels_in"])
        inputs = () if operator["which"] == "forward" else list(model.parameters())
        return self._call(operator, lambda: model(taken)[0], inputs)

    def _call(self, operator: Operator, forward: Call, inputs: Any) -> Call:
        """Return a forward without gradients, or a backward over a graph that is kept."""
        torch = self.torch
        if not inputs:

            def plain() -> object:
                with torch.no_grad() if operator["which"] == "forward" else nullcontext():
                    return forward()

            return plain
        with torch.enable_grad():
            made: Any = forward()
        ones = torch.ones_like(made)
        return lambda: torch.autograd.grad(made, inputs, ones, retain_graph=True)
