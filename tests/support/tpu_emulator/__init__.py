"""The TPU v2 REST API on this machine, for tests and `make demo-autoscale`.

Start it with `server.start`, or as a process: `python -m tests.support.tpu_emulator`.
"""
