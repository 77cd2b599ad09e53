"""The TPU v2 REST API on this machine, for the demo and tests: `server.start`, or `python -m iris_cli.tpu_emulator`."""
