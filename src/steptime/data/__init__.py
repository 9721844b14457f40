"""The data of a training: read it, prepare it once, feed it, check it. Needs `steptime[data]`."""
