"""Levers on torch.compile: on, off, and for sizes that vary."""
