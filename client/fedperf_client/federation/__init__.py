"""The organization's link to a coordinator: joining, the Exchange, the Flower node and app."""
