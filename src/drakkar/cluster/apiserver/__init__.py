"""The API server: routing, verbs, subresources, authentication and admission over the store."""
