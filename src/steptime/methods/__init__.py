"""Methods that change how a network is trained: transforms of gradients, and solvers."""
