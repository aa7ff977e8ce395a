"""The report of a study: what won and how sure that is, what was rejected, what was not tested."""

from __future__ import annotations

from tuner.ledger import Ledger
from tuner.notebook import entry


def markdown_report(ledger: Ledger) -> str:
    """The whole report as Markdown."""
    return "\n\n".join(entry(record) for record in ledger.trials)
