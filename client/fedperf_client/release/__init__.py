"""The release gate: only this package samples noise for a release and writes the ledger."""
