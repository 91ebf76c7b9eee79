"""REST and pages of the broker inside the network: the original's endpoints, a clean `/api/v1`, and a live picture."""
