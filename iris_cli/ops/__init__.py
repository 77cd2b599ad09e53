"""What the tool does: load, decide, commit, act. One file per operation; nothing here prints."""
