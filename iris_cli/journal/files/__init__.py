"""Other files of the state directory: heartbeats, runners, notices, workspaces, fetched logs."""
