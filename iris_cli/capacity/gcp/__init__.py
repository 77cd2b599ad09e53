"""Slices on Google Cloud: TPU VMs, created directly or by queued resources, through the official client."""

import logging
import warnings

# Otherwise warnings of Google's code go to stderr among our messages, and from cron into a mail each minute. BEFORE the
# import, which itself warns about Python versions.
logging.getLogger("google").addHandler(logging.NullHandler())
warnings.filterwarnings("ignore", module=r"google\.")
