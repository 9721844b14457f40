"""Data prepared once: plain mapped arrays, Arrow files, and an index that an editor can read."""
