"""The fast forms of the hot operations, blade-major `(k, *tokens, c)`, generated from tables for any algebra."""
