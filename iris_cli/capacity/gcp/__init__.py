"""Slices on Google Cloud: TPU VMs, created directly or by queued resources, through the official client."""

import logging
import warnings

# Google's code would print warnings, which cron would mail each minute. Suppress them BEFORE its import, which also
# warns.
logging.getLogger("google").addHandler(logging.NullHandler())
warnings.filterwarnings("ignore", module=r"google\.")
