"""The loader and the samples of a command: measured, checked and converted."""
