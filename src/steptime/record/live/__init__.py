"""What processes of a run share while it goes on: identities, questions, rings of collectives."""
