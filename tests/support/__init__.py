"""What tests talk to, stand on and are made of, one room for each kind of thing."""
