"""Controllers are the periodic steps of the coordinator: queries, reports, promotion, drift."""
