"""The search for parameters, over trials on this machine or on a Ray cluster."""
