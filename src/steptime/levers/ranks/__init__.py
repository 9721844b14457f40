"""Levers on several ranks: what they exchange, and how."""
