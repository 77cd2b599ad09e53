"""One cycle: ask the workers, settle what ended, place what waits, start and stop tasks over SSH."""
