"""Levers that compute a layer's products by another matmul: of oneDNN, or one for a convolution."""
