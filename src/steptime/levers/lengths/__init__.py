"""Levers on rows of different lengths."""
