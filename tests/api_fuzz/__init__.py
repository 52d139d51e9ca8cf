"""Requests made from the API's own description, sent to a real service; `make api-fuzz` runs them."""
