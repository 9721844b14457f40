"""The values of `steptime data`, for whoever shows or stores them."""
