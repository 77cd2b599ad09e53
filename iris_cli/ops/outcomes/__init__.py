"""Words for the ends of attempts and jobs, and their durations."""
