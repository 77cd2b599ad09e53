"""The files next to the log: heartbeats, runners, notices, workspaces, fetched logs."""
