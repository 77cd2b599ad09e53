"""The command line: it reads options, calls one operation, and renders what comes back. It decides nothing."""
