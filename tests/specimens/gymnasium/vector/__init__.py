"""Several environments as one."""

from gymnasium.vector.vector_env import SyncVectorEnv, VectorEnv

__all__ = ["SyncVectorEnv", "VectorEnv"]
