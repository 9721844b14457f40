"""What comes again, bit for bit: inputs of frozen modules, and the samples of a data set.

In: tensors at outermost calls and of batches. Out: the line `ag`. `row_book.py` tells rows apart by
digests; `repeats.py` says whose they are and what making them takes. Rows are only read.
"""
