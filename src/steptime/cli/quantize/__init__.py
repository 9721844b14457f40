"""The command `steptime quantize`."""
