"""Which part of a batch is padding: read from its tensors on the host, one batch in several.

Memory is read as it is: no operator of torch is called, and no tensor is kept.
"""
