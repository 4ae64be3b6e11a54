"""DuckDB profiles as sources of executions."""
