"""`python -m iris_cli` is `iris`, and so is the command of that name."""

import gc
import os


def main() -> None:
    """Run the command line. Ctrl-C ends it in one line from here on, also while its modules are being loaded."""
    # What a command makes, its classes first, it needs until its end: look for garbage in it seldom.
    gc.set_threshold(50_000)
    try:
        from iris_cli.cli.app import main as run

        run()
    except KeyboardInterrupt:
        import signal

        for each in (signal.SIGINT, signal.SIGTERM):  # it was heard: once more, it would only spoil the line
            signal.signal(each, signal.SIG_IGN)
        from iris_cli.cli.failures import interrupted

        os._exit(interrupted())


if __name__ == "__main__":
    main()
