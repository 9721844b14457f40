"""Changes of inputs that probes make: of columns, and of pictures."""
