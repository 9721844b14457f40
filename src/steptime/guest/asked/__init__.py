"""Answers what `steptime attach` asks a process while it trains.

In: the question in the run's folder, which is looked for at each write. Out: one answer file, and a
line `asked` that says which time of the training it took. `questions.py` finds the question and
writes the answer; the other modules examine an update or a few of them.
"""
