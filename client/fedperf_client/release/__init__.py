"""The one door: only here is noise drawn for a release and the ledger written."""
