"""Levers on the update: its kernel, its rule, its gradients and its batch."""
