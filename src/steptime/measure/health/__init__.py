"""Makes of losses what a diagnosis needs: bad numbers, levels, rises, repetition."""
