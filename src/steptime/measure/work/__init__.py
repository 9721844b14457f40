"""The work of a step: what was counted, padding, tokens and sizes of inputs."""
