"""The loop and what a person asks for: study, trial, identity, verdict, ledger.

`Study.load(name)` reads a study, `.run()` runs or continues it, `.best` is what it accepted.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.ledger import TrialRecord
    from tuner.study import Stop, Study, StudyError
    from tuner.summary import StudySummary
    from tuner.verdict import Code, Verdict

__all__ = ["Code", "Stop", "Study", "StudyError", "StudySummary", "TrialRecord", "Verdict"]

_HOMES = {
    "Code": "tuner.verdict",
    "Stop": "tuner.study",
    "Study": "tuner.study",
    "StudyError": "tuner.study",
    "StudySummary": "tuner.summary",
    "TrialRecord": "tuner.ledger",
    "Verdict": "tuner.verdict",
}


def __getattr__(name: str) -> Any:
    """Public names are loaded when first used: a trial's actor needs neither Optuna nor MLflow."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tuner' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
