"""The command line: it reads options, calls an operation and renders the result. It makes no decisions."""
