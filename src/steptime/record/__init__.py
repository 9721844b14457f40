"""The format of the record: file names, kinds of lines, layouts of rows, and the one reader.

The guest writes with it and the parent reads with it, so it needs the standard library alone and
imports nothing of ours but itself, relatively: the guest loads it under a private name. What the
lines hold is written down in docs/reference/run-folder.md; what they mean is left to the readers'
wings.
"""
