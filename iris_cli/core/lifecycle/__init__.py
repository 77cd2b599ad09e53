"""What happens next: each function weighs a request or an observation and records events on a draft."""
