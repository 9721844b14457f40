"""What `steptime quantize` found, as its document holds it."""
