"""Scores of reasons: claimed triplets against references, nulls and control answers."""
