"""Lines of what loaders gave: orders, sizes of batches, and pipelines of `tf.data`."""
