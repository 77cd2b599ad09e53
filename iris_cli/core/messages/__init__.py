"""Messages from workers, tasks and providers, and notifications to people."""
