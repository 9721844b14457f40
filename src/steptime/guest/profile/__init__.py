"""`run --profile`: a few steady steps under torch's profiler or a tool of the system's."""
