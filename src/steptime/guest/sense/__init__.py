"""Facts that tell whether the training does what its owner thinks.

Gradients that are not cleared, rates that are zero, modes that an evaluation left behind, losses of
two shapes, targets that are ignored. What is known for certain of a healthy training is watched no
longer. Nothing is ever written to an object of the user's.
"""
