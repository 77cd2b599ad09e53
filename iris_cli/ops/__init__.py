"""Operations of iris: load, decide, commit, act. One file per operation; no operation prints."""
