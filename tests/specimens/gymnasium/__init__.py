"""Stands in for Gymnasium: its names and bases, as far as the specimens need them."""

from gymnasium import vector
from gymnasium.core import Env, Wrapper

__all__ = ["Env", "Wrapper", "vector"]
