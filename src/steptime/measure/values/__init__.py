"""The values of a Measurement: what a run's steps, memory, work and profile came to."""
