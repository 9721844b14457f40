"""The guest's part of a trial: the plan, live blocks, and the session that levers act in."""
