"""Questions asked about an inspection: one module a question."""
