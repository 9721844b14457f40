"""The name of the backend, as Keras tells it."""


def backend():
    return "torch"
