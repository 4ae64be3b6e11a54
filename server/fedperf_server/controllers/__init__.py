"""One step of the coordinator each: questions, reports, promotion, drift."""
