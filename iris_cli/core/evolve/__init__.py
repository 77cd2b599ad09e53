"""The one interpreter of the log: what each event does to the tables. It records; it decides nothing.

Live use and replay go through the same functions, so that tomorrow's rules never rewrite yesterday's log.
"""

from iris_cli.core.evolve.edit import IllegalTransitionError, ImpossibleHistoryError
from iris_cli.core.evolve.log import Draft, evolve, replay

__all__ = ["Draft", "IllegalTransitionError", "ImpossibleHistoryError", "evolve", "replay"]
