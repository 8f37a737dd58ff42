"""Where R^d lives in an algebra: geometries, their embeddings, their attention features, presets and their JSON."""
