"""What may vary: knobs, the conditions and guards between them.

A `SearchSpace` is read from YAML (the catalog's, or a user's own), draws configurations, refuses
what cannot work before it costs a server start, and knows how large it is.
"""

from pathlib import Path

from search_spaces.check import Problem, check
from search_spaces.configuration import BadValue, Configuration, Refusal, UnknownKnob
from search_spaces.engine_knobs import EngineKnob, EngineKnobs
from search_spaces.expression import Expression, ExpressionError, Value
from search_spaces.introspection import IntrospectionError, introspect
from search_spaces.knob import Knob, Suggest
from search_spaces.round_trip import SpaceDocument
from search_spaces.rules import Constraint, Guard, KnownRejected
from search_spaces.schema import schema
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
    "EngineKnob",
    "EngineKnobs",
    "Expression",
    "ExpressionError",
    "Guard",
    "IntrospectionError",
    "Knob",
    "KnownRejected",
    "Problem",
    "Refusal",
    "SearchSpace",
    "Settings",
    "SpaceDocument",
    "SpaceSize",
    "Suggest",
    "UnknownKnob",
    "Value",
    "check",
    "introspect",
    "schema",
]
