"""Shows a key-value service: one folder that all servers see, and regions of tables with one owner each."""
