"""Hosts of this machine that play VMs: slices of the provider `local`, and the tour of `iris demo` on them."""
