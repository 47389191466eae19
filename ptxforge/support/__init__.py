"""Floor 0: errors with source carets, locations, element types, target features and settings."""
