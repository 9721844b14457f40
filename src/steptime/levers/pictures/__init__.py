"""Levers on how pictures are decoded and kept."""
