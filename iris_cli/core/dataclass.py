"""Data classes as the standard library has them, defined in a tenth of the time: see `core/lazy_dataclass.py`.

Type checkers see the library's own, for that is how these behave.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
else:
    from iris_cli.core.lazy_dataclass import MISSING, dataclass, field, fields, is_dataclass, replace

__all__ = ["MISSING", "dataclass", "field", "fields", "is_dataclass", "replace"]
