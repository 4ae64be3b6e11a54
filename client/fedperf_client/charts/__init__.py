"""Charts and pages for people, drawn without anything fetched."""
