"""Plans which regions move to which servers, from a snapshot of the model: pure, with a given draw."""
