"""Is the training still numerically sound: loss, norm of the gradients, and what the scaler skips.

Values of the CPU are read out of memory, which calls no operator. On a device, values that the
script reads are taken as they pass, and one update in sixteen is copied without a wait.
"""
