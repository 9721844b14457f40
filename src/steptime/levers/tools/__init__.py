"""What levers of several rooms share: owners of functions, tensors in results, edits of lines."""
