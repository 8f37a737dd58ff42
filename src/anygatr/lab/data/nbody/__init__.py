"""Gravitational n-body data: stars with planets, in one cluster or several."""
