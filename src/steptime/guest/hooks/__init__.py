"""Hooks on torch's own classes and registries: models, backward, optimizers, loaders."""
