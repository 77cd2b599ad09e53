"""Entry point of `iris` and `python -m iris_cli`."""

import gc
import os


def main() -> None:
    """Run the command line. Ctrl-C ends it with one line, even while modules are being imported."""
    # Most objects, above all classes, live until the command ends, so collecting garbage often is a waste.
    gc.set_threshold(50_000)
    try:
        from iris_cli.cli.app import main as run

        run()
    except KeyboardInterrupt:
        import signal
        import sys

        for each in (signal.SIGINT, signal.SIGTERM):  # a second signal would only garble the message
            signal.signal(each, signal.SIG_IGN)
        from iris_cli.cli.failures import report_interrupt

        words = sys.argv[: sys.argv.index("--")] if "--" in sys.argv else sys.argv
        os._exit(report_interrupt("interrupted", as_json="--json" in words))


if __name__ == "__main__":
    main()
