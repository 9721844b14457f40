"""Answers the questions of the search with contained processes of the user's command.

Start at `real_bench`, which has one method a question. `trial_process` starts and ends one trial,
`trial_watch` reads what it writes. On these stand `observe_baseline`, `live_trials` (states in one
process, with `arms`), `process_pairs` (states in processes of their own) and `judging` (whole runs,
for quality).
"""
