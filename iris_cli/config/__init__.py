"""Read `cluster.yaml` and job files. Parsing is strict, and all problems of a file are reported together."""
