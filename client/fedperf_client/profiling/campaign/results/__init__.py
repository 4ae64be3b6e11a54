"""A campaign's results: summary, charts, report, executions for the store."""
