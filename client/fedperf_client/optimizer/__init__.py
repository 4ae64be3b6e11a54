"""Which platform should run which operator."""
