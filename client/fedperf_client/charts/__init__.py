"""Charts and HTML pages. They load nothing from elsewhere."""
