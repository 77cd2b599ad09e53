"""Read `cluster.yaml` and job files. Parsing is strict; all problems of a file are reported together."""
