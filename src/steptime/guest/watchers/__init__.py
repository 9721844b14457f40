"""What is observed beside the steps whenever the recorder writes, and how the process ended.

In: the process, and the books that torch and Python keep. Out: one line each where there is news
(`m`, `c`, `ce`, `gc`, `q`, `i`), and the error of the exit line. Each file holds one watcher, which
the recorder polls; `ending.py` reads the exception at the exit. Start with any of them.
"""
