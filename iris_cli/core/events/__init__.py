"""Every event of the log."""
