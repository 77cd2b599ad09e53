"""Outcomes of attempts and jobs in words, and their durations."""
