"""Why something is not placed, what would change that, and the words for it."""
