"""The loop and what a person asks for: study, trial, identity, verdict, ledger."""
