"""Levers on the process: its allocator, threads, cores, garbage, interpreter and loops."""
