"""What the guest of a trial wrote: live states, and passes over a loader."""
