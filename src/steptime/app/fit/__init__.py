"""Whether a command fits into memory, and which shapes suit the device."""
