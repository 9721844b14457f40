"""A tiny training to try levers on: a convolutional network on noise, the same in each process."""

from __future__ import annotations

import copy
from typing import Any

LEARNING_RATE = 1e-3


class Training:
    """A model, its optimizer and its data; nothing is random once it is made."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.model = make_model(torch)
            self.images = torch.randn(16, 3, 8, 8)
            self.labels = torch.randint(0, 10, (16,))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE)

    def steps(self, number: int) -> list[float]:
        """Make some steps; return their losses."""
        losses = []
        for _ in range(number):
            self.optimizer.zero_grad()
            outputs = self.model(self.images)
            loss = self.torch.nn.functional.cross_entropy(outputs, self.labels)
            loss.backward()
            self.optimizer.step()
            losses.append(float(loss.detach()))
        return losses

    def loaded_into_a_new_one(self) -> Training:
        """Return a new training with this one's weights and optimizer state."""
        fresh = Training(self.torch)
        fresh.model.load_state_dict(self.model.state_dict())
        states = copy.deepcopy(self.optimizer.state_dict())
        groups = fresh.optimizer.state_dict()["param_groups"]
        fresh.optimizer.load_state_dict({**states, "param_groups": groups})
        return fresh

    def form(self) -> list[Any]:
        """Return all of it except the numbers: attributes, layouts, switches of the optimizer."""
        modules = [(type(one), sorted(vars(one))) for one in self.model.modules()]
        layouts = [(p.stride(), p.dtype, attributes(p)) for p in self.model.parameters()]
        groups = [{k: v for k, v in group.items() if k != "params"} for group in self.groups]
        return [modules, layouts, groups, self.optimizer.defaults, sorted(vars(self.optimizer))]

    @property
    def groups(self) -> list[dict[str, Any]]:
        """Return the optimizer's parameter groups."""
        groups: list[dict[str, Any]] = self.optimizer.param_groups
        return groups


def attributes(parameter: Any) -> list[str]:
    """Return what was set on a parameter, except for the mark of torch's compiler."""
    return sorted(name for name in vars(parameter) if not name.startswith("_dynamo"))


def make_model(torch: Any) -> Any:
    """Return two convolutions and a linear layer, with a few thousand weights."""
    nn = torch.nn
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(256, 10)),
    )
