"""What submit, cancel and wait print."""
