"""Shows where a step's time goes, compared with the most that the machine can do."""
