"""Routes requests about regions: models, ports and routes."""
