"""Groups acting on an algebra and the (multi)linear maps that commute with them: solved, printed, built from products."""
