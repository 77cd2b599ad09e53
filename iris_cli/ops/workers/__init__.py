"""What an operator does with workers: probe, drain, run commands, open a shell, free what holds them up."""
