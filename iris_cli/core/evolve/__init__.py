"""The only interpreter of the log: it applies events to the tables, and makes no decisions.

Commands and replays use the same functions, so later rules never change the meaning of an older log.
"""

from iris_cli.core.evolve.edit import IllegalTransitionError, ImpossibleHistoryError
from iris_cli.core.evolve.log import Draft, evolve, replay

__all__ = ["Draft", "IllegalTransitionError", "ImpossibleHistoryError", "evolve", "replay"]
