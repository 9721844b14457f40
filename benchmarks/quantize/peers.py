"""The same trained networks in int8 by Steptime, ONNX Runtime, torchao and ExecuTorch for Cortex-M.

    python -m venv PEERS && PEERS/bin/pip install ".[quantize]" torch==2.13.0 torchao executorch
    PEERS/bin/python benchmarks/quantize/peers.py --mnist FOLDER --cifar FOLDER [--weights FOLDER]

The peers are no dependencies of Steptime; one that is absent is left out. Each takes the network of
seed 0 and the same 200 inputs to calibrate with, and is judged on the same test rows, the first
`--rows` of them: torchao by PT2E with `X86InductorQuantizer`, ONNX Runtime by its static quantizer
(unsigned activations, signed weights, a scale a channel, min-max), ExecuTorch by its quantizer and
passes for a Cortex-M4, whose operators run in Python here. Steptime's is its integer reference.

Bytes are what each writes as its constants, or as its file; the arena is what it plans for the
values of one input. Operators in float are those that multiply, add, average or look up real
numbers after fusion: of ONNX Runtime in the graph that it has optimized, of torchao in what it
hands to Inductor, where a sum that Inductor computes with a convolution counts and a ReLU does not.
A peer that cannot take a network has a row that says why. ExecuTorch's needs `tosa-tools` as well.
Results go to benchmarks/results/quantize_peers.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import operator
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _trained_nets import kept_file, tasks, trained
from accuracy import NUM_CALIBRATED, by_onnx_runtime, in_parts, judge, outputs_of

from steptime.app.quantize.network_sizes import bytes_of
from steptime.quantize.c.arena import plan_arena
from steptime.quantize.calibrate import calibrate
from steptime.quantize.capture import capture
from steptime.quantize.write_onnx import onnx_model

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import conditions

OUT = Path(__file__).resolve().parents[1] / "results" / "quantize_peers.json"
MOVES = ("QuantizeLinear", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice")
MOVES += ("Identity", "Gather", "Concat", "Split", "MaxPool", "NhwcMaxPool", "Constant", "Cast")
TORCH_MOVES = ("view", "reshape", "permute", "transpose", "flatten", "slice", "select", "clone")
TORCH_MOVES += ("copy", "getitem", "dropout", "alloc", "sym_size", "expand", "unsqueeze", "squeeze")
Given = tuple[torch.nn.Module, Any, Any]
"""A network, inputs to calibrate with and inputs to run (num, ...)."""
Made = tuple[Any, dict[str, Any]]
"""Outputs (num, ...), and what else there is to say."""


def by_steptime(given: Given) -> Made:
    """Return what Steptime's integer reference makes, which its C makes bit for bit."""
    model, rows, x = given
    in_bytes, integer = calibrate(model, rows.numpy()).to_integers()
    size = sum(bytes_of(one) for one in integer.operators)
    return in_parts(integer.predict, x.numpy()), {
        "bytes": size,
        "file": onnx_model(in_bytes, integer).ByteSize(),
        "arena": plan_arena(integer).size,
        "in_float": {},
    }


def float_nodes(model: Any) -> dict[str, int]:
    """Return the operators on floats that ONNX Runtime is left with, by kind."""
    import onnx
    import onnxruntime

    with tempfile.TemporaryDirectory() as name:
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(Path(name) / "optimized.onnx")
        options.log_severity_level = 3
        onnxruntime.InferenceSession(model.SerializeToString(), options)
        graph = onnx.load(options.optimized_model_filepath).graph
    kinds = [one.op_type for one in graph.node]
    is_whole = ("QLinear", "QGemm", "MatMulInteger", "ConvInteger", "Dequantize")
    return dict(Counter(one for one in kinds if one not in MOVES and not one.startswith(is_whole)))


def of_onnx(model: Any, x: Any) -> Made:
    """Return what ONNX Runtime makes of a model of bytes."""
    found = {"file": model.ByteSize(), "arena": None, "in_float": float_nodes(model)}
    return outputs_of(model, x.numpy()), found


def by_steptime_in_onnx(given: Given) -> Made:
    """Return what ONNX Runtime makes of Steptime's file."""
    model, rows, x = given
    return of_onnx(onnx_model(*calibrate(model, rows.numpy()).to_integers()), x)


def by_static_quantizer(given: Given) -> Made:
    """Return what ONNX Runtime's static quantizer makes."""
    model, rows, x = given
    network, _ = capture(model, rows[:2])
    return of_onnx(by_onnx_runtime(onnx_model(network), rows.numpy())["min_max"], x)


def float_calls(graph: Any) -> dict[str, int]:
    """Return the operators of torch that take a real number which was not just dequantized."""

    def is_moved(node: Any) -> bool:
        return any(part in str(node.target) for part in (*TORCH_MOVES, "quantize"))

    def is_bytes(node: Any) -> bool:
        if node.op == "get_attr" or "dequantize" in str(node.target):
            return True
        return is_moved(node) and all(is_bytes(one) for one in node.all_input_nodes)

    found: Counter[str] = Counter()
    for node in graph.nodes:
        if node.op != "call_function" or is_moved(node) or "relu" in str(node.target):
            continue
        if not all(is_bytes(one) for one in node.all_input_nodes):
            found[str(node.target)] += 1
    return dict(found)


def by_torchao(given: Given) -> Made:
    """Return what torchao's PT2E makes for Inductor on x86, before Inductor compiles it."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    model, rows, x = given
    batch = {0: torch.export.Dim("batch", min=1, max=1024)}
    program = torch.export.export(model, (rows[:2],), dynamic_shapes=(batch,))
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(program.module(), quantizer)
    prepared(rows)
    made = convert_pt2e(prepared)
    read = {str(node.target) for node in made.graph.nodes if node.op == "get_attr"}
    tensors = [
        value for name in read if isinstance(value := operator.attrgetter(name)(made), torch.Tensor)
    ]
    return in_parts(lambda part: made(torch.from_numpy(part)).numpy(), x.numpy()), {
        "bytes": sum(one.nbytes for one in tensors),
        "arena": None,
        "in_float": float_calls(made.graph),
    }


def by_executorch(given: Given) -> Made:
    """Return what ExecuTorch lowers to a Cortex-M4: its program, and its plan of the memory."""
    from executorch.backends.cortex_m.edge_compile_config import cortex_m_edge_compile_config
    from executorch.backends.cortex_m.passes.cortex_m_pass_manager import CortexMPassManager
    from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer
    from executorch.backends.cortex_m.target_config import CortexM, CortexMTargetConfig
    from executorch.exir import ExecutorchBackendConfig, to_edge
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    model, rows, x = given
    order = torch.channels_last if rows.ndim == 4 else torch.contiguous_format
    model = model.to(memory_format=order)
    one = (rows[:1].contiguous(memory_format=order),)
    graph = torch.export.export(model, one).module(check_guards=False)  # a pass takes no guards
    prepared = prepare_pt2e(graph, CortexMQuantizer())
    for row in rows.split(1):
        prepared(row.contiguous(memory_format=order))
    program = to_edge(
        torch.export.export(convert_pt2e(prepared), one),
        compile_config=cortex_m_edge_compile_config(),
    )
    target = CortexMTargetConfig(cpu=CortexM.M4)
    lowered = CortexMPassManager(program.exported_program(), target_config=target).transform()
    program._edge_programs["forward"] = lowered
    run = lowered.module()
    parts = [run(row.contiguous(memory_format=order)).numpy() for row in x.split(1)]
    kinds = [str(node.target) for node in lowered.graph.nodes if node.op == "call_function"]
    ready = program.to_executorch(ExecutorchBackendConfig())
    (plan,) = ready.executorch_program.execution_plan
    left = [kind for kind in kinds if "cortex_m" not in kind]
    left = [kind for kind in left if not any(part in kind for part in TORCH_MOVES)]
    return np.concatenate(parts), {
        "file": len(ready.buffer),
        "arena": sum(plan.non_const_buffer_sizes),
        "in_float": dict(Counter(left)),
    }


PEERS: dict[str, tuple[str | None, Callable[[Given], Made]]] = {
    "Steptime": (None, by_steptime),
    "Steptime in ONNX Runtime": (None, by_steptime_in_onnx),
    "ONNX Runtime": ("onnxruntime", by_static_quantizer),
    "torchao PT2E": ("torchao", by_torchao),
    "ExecuTorch for Cortex-M4": ("executorch", by_executorch),
}
"""By name, the package that must be there, and what quantizes."""


def version_of(package: str) -> str | None:
    """Return the version of a package, or None where it is absent."""
    with contextlib.suppress(PackageNotFoundError):
        return version(package)
    return None


def beside(model: torch.nn.Module, data: Any, num: int, *, makes_again: bool) -> dict[str, Any]:
    """Return a row for each peer that is here."""
    rows, x, y = data[0][:NUM_CALIBRATED], data[2][:num], data[3][:num].numpy()
    with torch.no_grad():
        exact = in_parts(lambda part: model(torch.from_numpy(part)).numpy(), x.numpy())
    found: dict[str, Any] = {}
    for name, (package, quantize) in PEERS.items():
        if package and version_of(package) is None:
            found[name] = {"left_out": f"{package} is not installed"}
            continue
        try:
            with torch.no_grad():
                outputs, row = quantize((model, rows, x))
        except Exception as error:  # whatever stops a peer is its row
            told = str(error).strip().splitlines()
            found[name] = {"left_out": f"{type(error).__name__}: {told[0][:200] if told else ''}"}
            continue
        verdict = judge(exact, outputs, x.numpy(), y, makes_again=makes_again)
        found[name] = row | {"metric": verdict.candidate, "drop": -verdict.gain.estimate}
        found["float"] = {"metric": verdict.reference, "num_rows": len(x)}
    return found


def main() -> None:
    """Quantize, print and save network by network."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mnist", type=Path, required=True, help="folder of MNIST's four files")
    parser.add_argument("--cifar", type=Path, required=True, help="folder with train/ and test/")
    parser.add_argument("--weights", type=Path, help="folder where trained weights are kept")
    parser.add_argument("--rows", type=int, default=500, help="test rows")
    parser.add_argument("--only", action="append", help="a network; the others' results are kept")
    options = parser.parse_args()
    torch.set_num_threads(1)
    nets = json.loads(OUT.read_text())["nets"] if options.only and OUT.exists() else {}
    packages = ("torch", "onnxruntime", "torchao", "executorch")
    told = conditions() | {one: version_of(one) for one in packages}
    for name, task in tasks(options.mnist, options.cifar).items():
        if options.only and name not in options.only:
            continue
        data = task.data()
        model = trained(task, data, seed=0, kept=kept_file(options.weights, name, 0))
        nets[name] = beside(model, data, options.rows, makes_again=task.makes_again)
        print(name, json.dumps(nets[name], indent=1), flush=True)
        text = json.dumps({"conditions": told, "nets": nets}, indent=1, sort_keys=True)
        OUT.write_text(text + "\n")


if __name__ == "__main__":
    main()
