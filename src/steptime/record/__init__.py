"""The format of the record: file names, kinds of lines, layouts of rows, and the one reader.

The guest writes with it and the parent reads with it, so it needs the standard library alone. It
imports only itself of our code, relatively: the guest loads it under a private name.
docs/internals/run-folder.md says what the lines hold; the wings that read them know what they mean.
"""
