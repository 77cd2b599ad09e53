"""Decisions. Each function applies a request or an observation, and records the resulting events on a draft."""
