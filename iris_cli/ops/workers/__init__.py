"""Operations on workers: probe, drain, run commands, open a shell, stop stale processes."""
