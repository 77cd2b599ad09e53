"""From results to what a person or a program reads: tables, JSON, or one quiet line."""
