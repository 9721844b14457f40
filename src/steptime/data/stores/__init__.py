"""Reads object stores through fsspec: ranges of bytes, tried again where a store is busy."""
