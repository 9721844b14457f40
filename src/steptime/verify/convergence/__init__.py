"""Whether a changed training ends as good as the one as written, judged over seeds.

In: curves of finished runs of two arms, and a margin. Out: a verdict with its interval, and how
many runs would decide. Nothing is run here, and nothing is read: the same runs give the same
verdict. Statistics are scipy's (the extra `steptime[verify]`).
"""
