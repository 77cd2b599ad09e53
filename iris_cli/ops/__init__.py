"""Operations of iris: load, decide, commit, act. Each operation has a file. No operation prints."""
