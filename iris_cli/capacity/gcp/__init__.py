"""Slices of Google's: TPU VMs, asked for by themselves or by queued resources, through the official client."""
