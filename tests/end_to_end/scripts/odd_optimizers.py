"""Optimizers whose step is not one plain step; prints how many updates there were."""

import torch

torch.set_num_threads(1)
model = torch.nn.Linear(2, 1)
x = torch.ones(3, 2)


def closure():
    loss = model(x).sum()
    loss.backward()
    return loss


def fail_at_once():
    raise ValueError("in a closure")


def fail_after_forward():
    model(x)
    fail_at_once()


def fail_after_backward():
    closure()
    fail_at_once()


class CallsParent(torch.optim.Adam):
    def step(self, closure=None):
        return super().step(closure)


class CallsClosureFirst(torch.optim.SGD):
    def step(self, closure=None):
        with torch.enable_grad():
            loss = closure()
        super().step()
        return loss


class GoesBackwardItself(torch.optim.SGD):
    def step(self, closure_=None):
        with torch.enable_grad():
            closure()
        return super().step(closure_)


class Wraps(torch.optim.Optimizer):
    def __init__(self, base):
        super().__init__(base.param_groups, {})
        self.base = base

    def step(self, closure):
        with torch.enable_grad():
            closure()
        self.base.step()


class Fails(torch.optim.SGD):
    def step(self, closure=None):
        fail_at_once()


def make(cls, **more):
    return cls(model.parameters(), lr=0.1, **more)


def left_by_an_exception(act, *arguments):
    try:
        act(*arguments)
    except ValueError:
        return
    raise AssertionError("nothing was raised")


plain, failing, num_updates = make(torch.optim.SGD), make(Fails), 0
for _ in range(2):
    for optimizer in (make(CallsParent), plain):
        closure()
        optimizer.step()
        num_updates += 1
    for optimizer in (
        make(CallsParent),
        make(CallsClosureFirst),
        make(GoesBackwardItself),
        Wraps(plain),
        make(torch.optim.LBFGS, max_iter=3),
    ):
        optimizer.step(closure)
        num_updates += 1
    for fault in (fail_at_once, fail_after_forward, fail_after_backward):
        left_by_an_exception(plain.step, fault)
        plain.step(closure)
        left_by_an_exception(plain.step, fault)
        closure()
        plain.step()
        num_updates += 2
    left_by_an_exception(failing.step)
    closure()
    plain.step()
    left_by_an_exception(failing.step)
    plain.step()
    num_updates += 2
print(num_updates)
