"""Real SQL that is measured: judged queries, drawn ones, and the sessions that run them."""
