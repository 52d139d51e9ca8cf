"""The service: accepts uploads and requests, keeps the job records and answers (SPEC section 11)."""
