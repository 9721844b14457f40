"""How large the batches of an epoch will be: read at its beginning from what torch has drawn.

No sample is read, nothing is drawn, and nothing of the user's runs but the length of the data set.
"""
