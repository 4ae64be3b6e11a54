"""The only way out of an organization: what leaves, when, and why it is private.

Read it in this order:

1. `policy`: what an organization allows, what counts now, and from when.
2. `accountant`: the privacy cost of releases; `schedule`: every slot of a period within its budget.
3. `fedperf_client.contributions`: the bounded sum of a release, and how its noise is added.
4. `ledger`: each slot is charged once, in files that only grow (`ledger_files`); `lifetime`: all
   periods together.
5. `decisions`: an operator approves or withholds; `gate`: charge, sample, encode, sign, send;
   `noise`: the one source of randomness.
6. `history`: past releases and the spent budget; `preview`: a release without a charge.
"""
