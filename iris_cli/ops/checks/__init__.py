"""The parts of a check-up."""
