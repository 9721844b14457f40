"""Environments that are stepped one after the other."""


class VectorEnv:
    def step(self, actions):
        raise NotImplementedError

    def reset(self, *, seed=None):
        raise NotImplementedError


class SyncVectorEnv(VectorEnv):
    def __init__(self, makers):
        self.envs = [make() for make in makers]

    def step(self, actions):
        found = [env.step(action) for env, action in zip(self.envs, actions, strict=True)]
        states, rewards, ends, *_ = (list(values) for values in zip(*found, strict=True))
        return states, rewards, ends, [False] * len(ends), {}

    def reset(self, *, seed=None):
        return [env.reset(seed=seed)[0] for env in self.envs], {}
