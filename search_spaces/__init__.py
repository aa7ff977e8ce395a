"""What may vary: knobs, the conditions and guards between them.

A `SearchSpace` is read from YAML (the catalog's, or a user's own), draws configurations, refuses
what cannot work before it costs a server start, and knows how large it is.
"""

from pathlib import Path

from search_spaces.configuration import BadValue, Configuration, Refusal, UnknownKnob
from search_spaces.expression import Expression, ExpressionError, Value
from search_spaces.knob import Knob, Suggest
from search_spaces.rules import Constraint, Guard, KnownRejected
from search_spaces.settings import ArgValue, Settings
from search_spaces.size import SpaceSize
from search_spaces.space import Base, SearchSpace

CATALOG = Path(__file__).parent / "catalog"

__all__ = [
    "CATALOG",
    "ArgValue",
    "BadValue",
    "Base",
    "Configuration",
    "Constraint",
    "Expression",
    "ExpressionError",
    "Guard",
    "Knob",
    "KnownRejected",
    "Refusal",
    "SearchSpace",
    "Settings",
    "SpaceSize",
    "Suggest",
    "UnknownKnob",
    "Value",
]
