"""`python -m iris_cli` is `iris`."""

from iris_cli.cli.app import main

main()
