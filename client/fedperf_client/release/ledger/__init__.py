"""The privacy ledger: what was charged in a period and for good, in files that only grow."""
