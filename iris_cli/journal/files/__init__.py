"""The files beside the log: heartbeats, runners, notices, workspaces, pulled logs."""
