"""The measured set: plans that were really run, and the starts trained on them."""
