"""Slices of Google's: TPU VMs, asked for by themselves or by queued resources, through the official client."""

import logging
import warnings

# Else warnings of Google's code go to stderr beside our own words, and from cron into a mail each minute. BEFORE it is
# imported: it also warns of versions of Python.
logging.getLogger("google").addHandler(logging.NullHandler())
warnings.filterwarnings("ignore", module=r"google\.")
