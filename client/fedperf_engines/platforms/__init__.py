"""Programs that this organization can run, the engines that run them, and the executor."""
