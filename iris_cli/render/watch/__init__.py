"""Views of `iris watch`: a full screen on a terminal, otherwise a line for each change."""
