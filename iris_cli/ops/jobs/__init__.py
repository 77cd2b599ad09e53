"""Submit and cancel jobs."""
