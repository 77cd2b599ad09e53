"""The only interpreter of the log: applies events to the tables, without decisions.

Live use and replay share these functions, so that later rules never change the meaning of an older log.
"""

from iris_cli.core.evolve.edit import IllegalTransitionError, ImpossibleHistoryError
from iris_cli.core.evolve.log import Draft, evolve, replay

__all__ = ["Draft", "IllegalTransitionError", "ImpossibleHistoryError", "evolve", "replay"]
