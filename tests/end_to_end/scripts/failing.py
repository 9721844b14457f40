"""Fails in many places and writes what Python says of each; with a name, fails there for good."""

from __future__ import annotations

import json
import sys
import traceback
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Net(nn.Module):
    def __init__(self, fault=None) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 1)
        self.fault = fault

    def forward(self, x):
        x = self.inner(x)
        if self.fault is not None:
            raise self.fault
        return x


class Outer(nn.Module):
    def __init__(self, fault=None) -> None:
        super().__init__()
        self.net = Net(fault)

    def forward(self, x):
        return self.net(x)


class Rows(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index):
        if index == 3:
            raise ValueError("a bad row")
        return torch.randn(4)


class Torn(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 1

    @staticmethod
    def backward(context, gradient):
        raise RuntimeError("a torn backward")


class Stuck(torch.optim.SGD):
    def step(self, closure=None):
        raise RuntimeError("stuck")


X = torch.randn(2, 4)


def its_own_code():
    return {}["missing"]


def a_wrong_shape():
    Net()(torch.randn(2, 5))


def a_fault_in_a_model():
    Net(ValueError("in forward"))(X)


def a_fault_in_a_nested_model():
    Outer(ValueError("in forward"))(X)


def a_fault_in_a_model_in_evaluation():
    with torch.no_grad():
        Outer(ValueError("in forward")).eval()(X)


def a_fault_chained_to_another():
    try:
        Net(ValueError("first"))(X)
    except ValueError as error:
        raise RuntimeError("second") from error


def an_exit_in_a_model():
    Net(SystemExit(3))(X)


def an_interrupt_in_a_model():
    Net(KeyboardInterrupt())(X)


def a_wrong_loss():
    nn.CrossEntropyLoss()(X, torch.randn(3))


def a_bad_row():
    list(DataLoader(Rows(), batch_size=2))


def a_bad_row_in_a_worker():
    list(DataLoader(Rows(), batch_size=2, num_workers=1))


def a_bad_collate():
    list(DataLoader(Rows(), batch_size=2, collate_fn=lambda rows: rows.missing))


def a_second_backward():
    loss = Net()(X).pow(2).sum()
    loss.backward()
    loss.backward()


def a_torn_backward():
    Torn.apply(Net()(X)).sum().backward()


def a_torn_autograd_backward():
    torch.autograd.backward([Torn.apply(Net()(X)).sum()])


def an_unused_gradient():
    torch.autograd.grad(Net()(X).sum(), torch.randn(2, requires_grad=True))


def a_stuck_optimizer():
    Stuck(Net().parameters(), lr=0.1).step()


def a_fault_in_a_closure():
    torch.optim.SGD(Net().parameters(), lr=0.1).step(its_own_code)


def a_scaler_without_gradients():
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(1))
    scaler.step(torch.optim.SGD(Net().parameters(), lr=0.1))


def a_wrong_norm():
    model = Net()
    model(X).sum().backward()
    nn.utils.clip_grad_norm_(model.parameters(), float("nan"), norm_type="wrong")


def a_missing_folder():
    torch.save(Net(), "missing/folder/model.pt")


def a_tensor_of_many_values():
    X.item()


def a_tensor_as_a_truth():
    bool(X)


def a_strange_device():
    X.to("nowhere")


def a_collective_without_a_group():
    torch.distributed.all_reduce(X)


# -- what only warns


def a_loss_as_a_float():
    for _ in range(2):
        float(Net()(X).sum())  # torch warns once of this one; it names the line that runs


def an_imaginary_part_dropped():
    (X * 1j).to(torch.float32)


def nothing_to_clip():
    nn.utils.clip_grad_norm_((p for p in ()), 1.0)


def a_deprecated_argument():
    torch.autograd.grad(Net()(X).sum(), X_NEEDED, only_inputs=False, allow_unused=True)


def a_graph_that_stays():
    Net()(X).sum().backward(create_graph=True)


X_NEEDED = torch.randn(2, requires_grad=True)
WARNINGS = (
    a_loss_as_a_float,
    an_imaginary_part_dropped,
    nothing_to_clip,
    a_deprecated_argument,
    a_graph_that_stays,
)

CASES = (
    its_own_code,
    a_wrong_shape,
    a_fault_in_a_model,
    a_fault_in_a_nested_model,
    a_fault_in_a_model_in_evaluation,
    a_fault_chained_to_another,
    an_exit_in_a_model,
    an_interrupt_in_a_model,
    a_wrong_loss,
    a_bad_row,
    a_bad_row_in_a_worker,
    a_bad_collate,
    a_second_backward,
    a_torn_backward,
    a_torn_autograd_backward,
    an_unused_gradient,
    a_stuck_optimizer,
    a_fault_in_a_closure,
    a_scaler_without_gradients,
    a_wrong_norm,
    a_missing_folder,
    a_tensor_of_many_values,
    a_tensor_as_a_truth,
    a_strange_device,
    a_collective_without_a_group,
)

if __name__ == "__main__":
    if sys.argv[1:]:
        globals()[sys.argv[1]]()
    found = {}
    for case in CASES:
        try:
            case()
        except BaseException:
            found[case.__name__] = traceback.format_exc()
    for case in WARNINGS:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            case()
        found[case.__name__] = [(one.filename, one.lineno, str(one.message)) for one in seen]
    with open("found.json", "w") as file:
        json.dump(found, file, indent=1)
