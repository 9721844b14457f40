"""Training on graphs: neighbor sampling, partitioned features and MaxK layers."""
