"""Work beside the thread that asks for it: threads and processes."""
