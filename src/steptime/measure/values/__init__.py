"""The values of a Measurement: a run's steps, memory, work and profile."""
