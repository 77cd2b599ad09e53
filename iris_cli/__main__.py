"""`python -m iris_cli` is `iris`, and so is the command of that name."""

import os


def main() -> None:
    """Run the command line. Ctrl-C ends it in one line from here on, also while its modules are being loaded."""
    try:
        from iris_cli.cli.app import main as run

        run()
    except KeyboardInterrupt:
        from iris_cli.cli.failures import interrupted

        os._exit(interrupted())


if __name__ == "__main__":
    main()
