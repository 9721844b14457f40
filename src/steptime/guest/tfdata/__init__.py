"""tf.data in the process of a bench: which calls made a pipeline, and tf.data's own statistics."""
