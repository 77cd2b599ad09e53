"""Changing `cluster.yaml` as a person would: here and there a line, and everything else stays to the byte."""
