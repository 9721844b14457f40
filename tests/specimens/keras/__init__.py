"""What Steptime knows of Keras on torch: its own optimizers, inside its own `fit`; nothing more."""

import torch

from keras.src.backend import backend
from keras.src.optimizers.base_optimizer import SGD

__all__ = ["SGD", "Trainer", "backend"]


class Trainer:
    """Trains a model of torch's as Keras does: forward, loss, backward, and its own update."""

    def __init__(self, model, optimizer):
        self.model = model
        self.optimizer = optimizer

    def fit(self, loader, epochs):
        for _ in range(epochs):
            for x, y in loader:
                self.model.zero_grad()
                loss = torch.nn.functional.mse_loss(self.model(x), y)
                loss.backward()
                weights = list(self.model.parameters())
                with torch.no_grad():
                    self.optimizer.apply([weight.grad for weight in weights], weights)
        return loss.item()
