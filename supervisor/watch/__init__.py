"""Those who look on: subscriptions and publishers."""
