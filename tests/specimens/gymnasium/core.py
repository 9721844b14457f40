"""The bases of an environment and of what is put around one."""

from typing import Generic, TypeVar

Observation = TypeVar("Observation")
Action = TypeVar("Action")


class Env(Generic[Observation, Action]):
    def step(self, action):
        raise NotImplementedError

    def reset(self, *, seed=None):
        raise NotImplementedError


class Wrapper(Env[Observation, Action]):
    def __init__(self, env):
        self.env = env

    def step(self, action):
        return self.env.step(action)

    def reset(self, *, seed=None):
        return self.env.reset(seed=seed)
