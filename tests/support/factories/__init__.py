"""Documents, models, tenants and manifests that tests are made of."""
