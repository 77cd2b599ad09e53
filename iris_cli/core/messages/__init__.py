"""Values that come from workers, tasks and providers, or go to people."""
