"""Output of `iris report`: figures, JSON, and one self-contained HTML file."""
