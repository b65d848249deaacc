"""HTTP interface of regions: models, ports and routes."""
