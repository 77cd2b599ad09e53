"""Files of the state directory other than the log: heartbeats, runners, notices, workspaces, copied logs."""
