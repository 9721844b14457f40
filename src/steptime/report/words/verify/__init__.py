"""Words of what is verified of a model."""
