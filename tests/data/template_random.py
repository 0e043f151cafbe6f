def cases():
    return [("{{ 1 }}", {})]
