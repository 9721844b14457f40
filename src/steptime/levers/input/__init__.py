"""Levers on how batches are read and copied to a device."""
