"""The checks: one pytest module per assignment, and the plugin that gives points for them."""
