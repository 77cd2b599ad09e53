"""The event log: its lines, the file, the archive, repair and verification."""
