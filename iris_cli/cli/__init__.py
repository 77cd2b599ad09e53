"""The command line: reads options, calls an operation and renders its result. Makes no decisions."""
