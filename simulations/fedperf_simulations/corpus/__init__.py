"""The measured set: plans that were really run, and the models pretrained on them."""
