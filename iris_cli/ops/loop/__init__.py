"""Who runs the cycles: the background loop, and the locks by which every process that runs cycles is seen."""
