"""SSH hosts on this machine that simulate VMs: slices of the provider `local`, and the tour of `iris demo`."""
