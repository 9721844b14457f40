"""Ailments of trainings that run well and learn something else than their owner thinks."""
