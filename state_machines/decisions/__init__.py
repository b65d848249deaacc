"""One module per decision of the controller: the model and an event in, changes out. Nothing is applied here."""
