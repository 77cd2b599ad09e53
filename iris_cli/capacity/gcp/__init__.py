"""Slices on Google Cloud: TPU VMs, created directly or by queued resources. Uses Google's client library."""

import logging
import warnings

# Google's library prints warnings, and cron would mail them each minute. Suppress them BEFORE its import, because the
# import prints warnings, too.
logging.getLogger("google").addHandler(logging.NullHandler())
warnings.filterwarnings("ignore", module=r"google\.")
